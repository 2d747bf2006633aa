/// The `main` of every fuzzer in Tests/Fuzz: libFuzzer's own, with what the fuzzer calls `LLVMFuzzerTestOneInput`.
int fuzz_main(int count, char **arguments);
