#include "attn/Tools/Tools.h"

int main(int argc, char **argv) { return attn_opt_main(argc, argv); }
