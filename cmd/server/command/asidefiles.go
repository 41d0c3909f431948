package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/cmd/server/bundles"
)

// asideFiles are bundles in temporary files. Their secrets are sealed with a key that never leaves this process.
type asideFiles struct {
	directory  string
	identities []age.Identity
	recipient  *age.X25519Recipient
	open       []*bundles.File
}

// asideFile is one of them, and what was exported into it.
type asideFile struct {
	*bundles.File
	exported []*bundles.Exported
}

// aside calls do with temporary files, and removes them.
func aside(do func(*asideFiles) error) (err error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("make a key for temporary files: %w", err)
	}
	directory, err := os.MkdirTemp("", "regent-cluster-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	a := &asideFiles{directory: directory, identities: []age.Identity{key}, recipient: key.Recipient()}
	defer func() {
		for _, file := range a.open {
			err = errors.Join(err, file.Close())
		}
		err = errors.Join(err, os.RemoveAll(directory))
	}()
	return do(a)
}

// export exports a workspace into a file of its own.
func (a *asideFiles) export(ctx context.Context, k *kubeconfig, name string, from logicalcluster.Path, o bundles.ExportOptions) (*asideFile, error) {
	o.SealTo = []string{a.recipient.String()}
	out := &asideFile{}
	var err error
	out.File, err = a.write(name, func(to io.Writer) (err error) {
		out.exported, err = bundles.Export(ctx, k.client, from, to, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// write writes a file and opens it.
func (a *asideFiles) write(name string, write func(io.Writer) error) (*bundles.File, error) {
	name = filepath.Join(a.directory, name)
	if err := bundles.WriteFile(name, write); err != nil {
		return nil, err
	}
	file, err := bundles.OpenFile(name)
	if err != nil {
		return nil, err
	}
	a.open = append(a.open, file)
	return file, nil
}
