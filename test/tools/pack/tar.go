package main

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"time"
)

// entry is a file in an archive. A directory's name ends with a slash. A link has a target and no content.
type entry struct {
	name    string
	mode    int64
	owner   int // uid and gid
	content []byte
	target  string
}

// writeTar writes entries in their order. The same entries and date give the same bytes.
func writeTar(w io.Writer, date time.Time, entries []entry) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Linkname: e.target, Mode: e.mode, Size: int64(len(e.content)),
			Uid: e.owner, Gid: e.owner, ModTime: date, Format: tar.FormatPAX,
		}
		switch {
		case e.target != "":
			header.Typeflag = tar.TypeSymlink
		case e.name[len(e.name)-1] == '/':
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// compressed calls write with a writer that compresses. The header has no name and no time.
func compressed(w io.Writer, write func(io.Writer) error) error {
	z := gzip.NewWriter(w)
	if err := write(z); err != nil {
		return err
	}
	return z.Close()
}
