"""From text to code: what was compiled before (bundles, the disk), and else the compiler."""
