"""What is attended: descriptions, and the score functions, visibilities, stores and head classes they consist of."""
