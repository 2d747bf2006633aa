/// The `main` of every fuzzer in Tests/Fuzz. Runs libFuzzer with the fuzzer's `LLVMFuzzerTestOneInput`.
int fuzz_main(int count, char **arguments);
