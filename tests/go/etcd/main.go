// Command etcd is a real etcd server for the tests, built from its published module where no etcd is installed.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
