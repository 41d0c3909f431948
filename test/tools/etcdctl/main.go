// Command etcdctl is etcd's own etcdctl, and etcdutl if it is started by that name: what backups are made and restored
// with (docs/BACKUP.md). They share most of what they link, so that one program is half as large as two.
package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/pkg/v3/cobrautl"
)

func main() {
	if filepath.Base(os.Args[0]) != "etcdutl" {
		ctlv3.MustStart()
		return
	}
	if err := newEtcdutl().Execute(); err != nil {
		cobrautl.ExitWithError(cobrautl.ExitError, errors.New("etcdutl: "+err.Error()))
	}
}

// newEtcdutl is etcdutl's own main package, which cannot be imported: its commands and its two flags.
func newEtcdutl() *cobra.Command {
	root := &cobra.Command{Use: "etcdutl", Short: "Works on files of etcd."}
	root.PersistentFlags().DurationVar(&etcdutl.FlockTimeout, "timeout", 10*time.Second, "time to wait to obtain a file lock on db file, 0 to block indefinitely")
	root.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "set the output format (fields, json, protobuf, simple, table)")
	root.AddCommand(
		etcdutl.NewDefragCommand(), etcdutl.NewSnapshotCommand(), etcdutl.NewHashKVCommand(),
		etcdutl.NewVersionCommand(), etcdutl.NewCompletionCommand(), etcdutl.NewMigrateCommand(),
	)
	return root
}
