#include "CFuzzMain.h"

#include <stddef.h>
#include <stdint.h>

// libFuzzer declares them in no header. https://llvm.org/docs/LibFuzzer.html#using-libfuzzer-as-a-library
int LLVMFuzzerTestOneInput(const uint8_t *start, size_t count);
int LLVMFuzzerRunDriver(int *count, char ***arguments, int (*test)(const uint8_t *start, size_t count));

int fuzz_main(int count, char **arguments) {
    return LLVMFuzzerRunDriver(&count, &arguments, LLVMFuzzerTestOneInput);
}

// SwiftPM enters an executable by the name of its target.
#define ENTERED_AS(fuzzer) int fuzzer##_main(int, char **) __attribute__((alias("fuzz_main")))
ENTERED_AS(AnswerFuzzer);
ENTERED_AS(ConfigurationFuzzer);
ENTERED_AS(DecoderFuzzer);
ENTERED_AS(EntryFuzzer);
ENTERED_AS(FetcherReportFuzzer);
ENTERED_AS(PrinterFuzzer);
ENTERED_AS(SnifferFuzzer);
ENTERED_AS(TokenAnswerFuzzer);
ENTERED_AS(URLFuzzer);
