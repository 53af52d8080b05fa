// A shared object that has nothing to do with paramd.
extern "C" int Answer() { return 42; }
