package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/pflag"
)

// ballast is memory that the process holds and does nothing with, beside Go's heap, as much as a large shard's caches
// would have. When a process is killed, its kernel takes back all of its memory before it closes its connections.
type ballast struct {
	mib  int
	huge bool
}

func (b *ballast) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&b.mib, "ballast-mib", 0, "resident memory that is held for nothing, in MiB")
	flags.BoolVar(&b.huge, "ballast-huge-pages", false, "ask the kernel for huge pages for it")
	for _, name := range []string{"ballast-mib", "ballast-huge-pages"} {
		if err := flags.MarkHidden(name); err != nil {
			panic(err) // they are defined above
		}
	}
}

// hold takes it, every page, until the process ends.
func (b *ballast) hold() error {
	if b.mib == 0 {
		return nil
	}
	memory, err := syscall.Mmap(-1, 0, b.mib<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("take %d MiB: %w", b.mib, err)
	}
	if b.huge {
		if err := syscall.Madvise(memory, syscall.MADV_HUGEPAGE); err != nil {
			return fmt.Errorf("ask for huge pages: %w", err)
		}
	}
	for at := 0; at < len(memory); at += os.Getpagesize() {
		memory[at] = 1
	}
	return nil
}
