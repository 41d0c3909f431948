// Command versitygw is a real server of S3, with one bucket on a disk, built from its module so that tests need nothing
// installed. Of the gateway it has what speaks S3 and what writes files.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

func main() {
	address := flag.String("address", "", "where it listens")
	directory := flag.String("directory", "", "where it keeps objects")
	bucket := flag.String("bucket", "", "the bucket that it has")
	flag.Parse()
	log.Fatal(serve(*address, *directory, *bucket))
}

// serve takes credentials from the environment, as clients do.
func serve(address, directory, bucket string) error {
	objects, attributes := filepath.Join(directory, "objects"), filepath.Join(directory, "attributes")
	for _, made := range []string{filepath.Join(objects, bucket), attributes} {
		if err := os.MkdirAll(made, 0o700); err != nil {
			return err
		}
	}
	beside, err := meta.NewSideCar(attributes) // not every disk has attributes of files
	if err != nil {
		return err
	}
	files, err := posix.New(objects, beside, posix.PosixOpts{SideCarDir: attributes})
	if err != nil {
		return err
	}
	root := auth.Account{Access: os.Getenv("AWS_ACCESS_KEY_ID"), Secret: os.Getenv("AWS_SECRET_ACCESS_KEY"), Role: auth.RoleAdmin}
	server, err := s3api.New(files, middlewares.RootUserConfig{Access: root.Access, Secret: root.Secret}, os.Getenv("AWS_REGION"),
		auth.NewIAMServiceSingle(root), nil, nil, nil, nil, s3api.WithQuiet(), s3api.WithKeepAlive(), s3api.WithConcurrencyLimiter(1000, 1000))
	if err != nil {
		return err
	}
	return server.ServeMultiPort([]string{address})
}
