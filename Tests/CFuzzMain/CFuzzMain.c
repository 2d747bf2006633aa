#include "CFuzzMain.h"

#include <stddef.h>
#include <stdint.h>

// libFuzzer has no header with these declarations. https://llvm.org/docs/LibFuzzer.html#using-libfuzzer-as-a-library
int LLVMFuzzerTestOneInput(const uint8_t *start, size_t count);
int LLVMFuzzerRunDriver(int *count, char ***arguments, int (*test)(const uint8_t *start, size_t count));

int fuzz_main(int count, char **arguments) {
    return LLVMFuzzerRunDriver(&count, &arguments, LLVMFuzzerTestOneInput);
}

// SwiftPM names the entry point of an executable after its target.
#define ENTRY_POINT(fuzzer) int fuzzer##_main(int, char **) __attribute__((alias("fuzz_main")))
ENTRY_POINT(ConfigurationFuzzer);
ENTRY_POINT(DecoderFuzzer);
ENTRY_POINT(DirectoryEntryFuzzer);
ENTRY_POINT(EntryFuzzer);
ENTRY_POINT(FetcherReportFuzzer);
ENTRY_POINT(HelperMessageFuzzer);
ENTRY_POINT(HTTPRequestFuzzer);
ENTRY_POINT(LogoutTokenFuzzer);
ENTRY_POINT(PrinterFuzzer);
ENTRY_POINT(RepairFuzzer);
ENTRY_POINT(ReplyFuzzer);
ENTRY_POINT(ResponseFuzzer);
ENTRY_POINT(ServiceRecordFuzzer);
ENTRY_POINT(SnifferFuzzer);
ENTRY_POINT(StreamFuzzer);
ENTRY_POINT(TokenResponseFuzzer);
ENTRY_POINT(URLFuzzer);
