//! Runs the protobuf compiler that the crate `protoc-bin-vendored` carries, with the arguments given.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

fn main() {
    let protoc = match protoc_bin_vendored::protoc_bin_path() {
        Ok(path) => path,
        Err(error) => {
            eprintln!("protoc: no vendored binary for this platform ({error}); install protoc and put it on PATH");
            std::process::exit(1);
        }
    };
    let error = Command::new(&protoc).args(std::env::args_os().skip(1)).exec();
    eprintln!("protoc: run {}: {error}", protoc.display());
    std::process::exit(1);
}
