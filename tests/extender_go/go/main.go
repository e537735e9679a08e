// The client side of the extender protocol as kube-scheduler itself has it, for tests and benchmarks:
//
//	extender-client ask                 a question a line on standard input, an answer a line on standard output
//	extender-client recode FILE COPY    how long encoding/json needs for a body; see recode.go
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "ask":
		err = ask(os.Stdin, os.Stdout)
	case len(os.Args) == 4 && os.Args[1] == "recode":
		err = recode(os.Args[2], os.Args[3], os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("usage: extender-client ask | recode FILE COPY")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "extender-client:", err)
		os.Exit(1)
	}
}
