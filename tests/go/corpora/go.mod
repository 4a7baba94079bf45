// The modules whose schemas and samples tests/it/schema_corpora.rs reads: tests/run downloads them, nothing is built. They are not required
// here, so that their own dependencies are not downloaded; go.sum holds their checksums.
module corpora

go 1.24
