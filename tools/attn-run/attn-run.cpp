#include "attn/Tools/Tools.h"

int main(int argc, char **argv) { return attn_run_main(argc, argv); }
