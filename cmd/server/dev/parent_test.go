package dev

import (
	"context"
	"fmt"
	"io"
	"os"
)

// parentOf is the environment variable that makes this test binary a `regent dev` that runs a program.
const parentOf = "TEST_PARENT_OF"

func asParent(program string) int {
	c := &child{name: "replica-0", program: program, out: &output{to: io.Discard}, log: program + ".log"}
	if _, err := c.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1 // the program ends only when it is told
}
