package main

import (
	"errors"
	"fmt"
	"go/ast"
	"slices"
	"strings"

	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
)

const pathsIntro = `
## Paths of a replica

These belong to the process and to no logical cluster. Members of ` + "`system:masters`" + ` may use all of them. *A binding* is a ClusterRoleBinding in
` + "`system:admin`" + ` to a role that allows the verb on the URL ([ACCESS.md](../ACCESS.md#who-may-do-what)).

| path | verb | answers | who else may |
|---|---|---|---|
`

const clusterPaths = `
## Paths in a logical cluster

Beside the APIs:

| path | verb | answers | who may |
|---|---|---|---|
| ` + "`/clusters/<path>/bundle`" + ` | get | a page of the cluster's bundle ([BUNDLES.md](../BUNDLES.md)): lines of JSON, of which the last says whether there is ` + "`more`" + `; the next page is at ` + "`?revision=<that of the first line>&after=<last key>`" + `. ` + "`?ago=90s`" + ` has the first page of then. ` + "`?sealTo=<recipient of age>`" + `, which may be repeated, or ` + "`?unsealed=true`" + ` | who may get that path, and list all resources (` + "`*.*`" + `), in the cluster |
| ` + "`/clusters/<path>/bundle/freeze`" + ` | post, put, delete | freezes the cluster: all other writes in it wait. ` + "`POST`" + ` begins, and says how the ` + "`freeze`" + ` is called and since which ` + "`revision`" + ` nobody else writes; ` + "`PUT ?freeze=<it>`" + ` renews it, and writes and deletes the objects of its body, lines as those of a bundle, as they are; ` + "`DELETE ?freeze=<it>`" + ` ends it ([BUNDLES.md](../BUNDLES.md#exactly-as-it-was)) | who may use that path both in the cluster and in ` + "`system:admin`" + ` |
| ` + "`/clusters/<path>/bundle/coming`" + ` | post, put, delete | takes a workspace of the cluster in as it was. ` + "`POST`" + ` with its LogicalCluster, and perhaps its Workspace, as bundles have them, begins, and says how the ` + "`freeze`" + ` is called; ` + "`PUT ?cluster=<name>&freeze=<it>`" + ` renews that, and writes the objects of its body; ` + "`POST ?freeze=<it>`" + ` with what it has begun with makes it a workspace that is there; ` + "`DELETE ?cluster=<name>&freeze=<it>`" + ` removes it ([BUNDLES.md](../BUNDLES.md#a-workspace-that-was-deleted)) | who may use that path both in the cluster and in ` + "`system:admin`" + ` |
| ` + "`/clusters/<path>/bundle/leaving`" + ` | get, post, put, delete | gives the cluster away to another shard ([MOVING.md](../MOVING.md)). ` + "`GET`" + ` has a page of it, with ` + "`?since=<a revision>`" + ` what has changed, with ` + "`?schemas=`" + ` the names of the schemas that it has bound, and with ` + "`?schema=<one>`" + ` one of them; ` + "`POST ?to=<shard>&move=<an id>`" + ` freezes it, and says how the ` + "`freeze`" + ` is called; with ` + "`?freeze=<it>`" + ` ` + "`PUT`" + ` renews that, ` + "`DELETE`" + ` ends it, and ` + "`POST`" + ` makes it one of the other shard | who may use that path both in the cluster and in ` + "`system:admin`" + ` |
| ` + "`/clusters/<path>/bundle/arriving`" + ` | get, post, put, patch, delete | takes a cluster over from another shard ([MOVING.md](../MOVING.md)); the path is ` + "`system:admin`" + `. ` + "`POST`" + ` with its LogicalCluster begins, and says how the ` + "`freeze`" + ` is called; with ` + "`?cluster=<name>&freeze=<it>`" + ` ` + "`PUT`" + ` writes the objects of its body, or with ` + "`&schema=<name>`" + ` keeps a schema, ` + "`PATCH`" + ` says that all is there, ` + "`POST`" + ` makes it one that is there once the other shard says that it has left, and ` + "`DELETE`" + ` removes it. With ` + "`?cluster=<name>`" + ` alone ` + "`GET`" + ` says whether it comes, and ` + "`DELETE`" + ` has whoever has begun go on no more | who may use that path in ` + "`system:admin`" + ` |
`

const frontIntro = `
## Paths of a front

A front forwards all other paths to the shard that has the logical cluster.

| path | answers | who may |
|---|---|---|
| ` + "`/livez`, `/healthz`" + ` | that the front lives | anybody |
| ` + "`/readyz`" + ` | that it knows where clusters are | anybody |
| ` + "`/metrics`" + ` | its metrics: [metrics.md](metrics.md#fronts) | whom the root shard shows its own |
| ` + "`/shards/<name>/...`" + ` | what that shard answers | whom that shard lets |
| ` + "`/regent/v1/...`" + ` | what a replica of a shard answers | whom that replica lets |
`

const byBinding, anybody = "a binding", "anybody"

// endpoint is what a path of the process is for. Below a path that ends with /... there are others.
type endpoint struct{ path, verb, answers, who string }

var endpoints = []endpoint{
	{"/livez/...", "get", "that the process lives; with `?verbose` by check", anybody},
	{"/readyz/...", "get", "that the replica can serve; with `?verbose` by check, `/readyz/<check>` one of them", anybody},
	{"/healthz/...", "get", "as `/livez`, for older clients", anybody},
	{"/version", "get", "the version", anybody},
	{"/metrics/...", "get", "metrics: [metrics.md](metrics.md)", byBinding},
	{"/statusz", "get", "the version, the time since the start, the paths", byBinding},
	{"/flagz", "get", "the flags, as they were given", byBinding},
	{"/configz", "get", "the configuration in force, without secrets", byBinding},
	{"/debug/...", "get, put", "profiles, and the log's verbosity (`/debug/flags/v`), with `--profiling`", byBinding},
	{"/ui/...", "get", "the page for browsers, and at `/ui/docs/` these docs", byBinding},
	{status.ReplicaPath, "get", "this replica; with `?stacks=<controller>` its stacks", byBinding + "; replicas of the same shard"},
	{status.ShardPath, "get", "the shard: all its replicas", byBinding + "; other shards of the installation"},
	{status.InstallationPath, "get", "all shards", byBinding},
	{status.TermsPath, "get", "the history of terms of this shard, or of `?shard=`", byBinding + "; other shards of the installation"},
	{status.WorkspacesPath, "get", "workspaces whose path contains `?search=`", byBinding + "; other shards of the installation"},
	{status.TokenKeysPath, "get", "the public keys of the tokens of this shard's service accounts", byBinding + "; other shards of the installation"},
	{status.ExportPath, "get", "what an APIExport of this shard offers, whether a user may bind it, or which have changed", byBinding + "; other shards of the installation"},
	{status.AccountPath, "get", "whether a service account of this shard, and what a token is bound to, is there, by name and uid", byBinding + "; other shards of the installation"},
	{status.FormatPath, "post", "raises the shard's format of what is stored, if all its replicas are heard and read it ([upgrades](../UPGRADE.md#finish)); body `{\"to\": 2}`", byBinding},
	{status.BackupPath, "get", "a frame of the shard's backup, sealed for `--backup-recipients` ([BACKUP.md](../BACKUP.md#each-workspace-to-the-second)): `?of=changes&after=<revision>`, or `?of=base&after=<next>` with what the first line of the answer before says", byBinding},
	{status.FarewellPath, "post", "has this replica list another one no more, which has ended; body `{\"replica\": \"\"}`", byBinding + "; replicas of the same shard"},
	{status.TopPath, "get", "what clients of this replica have asked for, by logical cluster", byBinding},
	{routing.StepDownPath, "post", "has this replica hand over if it leads, with `?shard=<its shard>` whoever leads; body `{\"reason\": \"\", \"to\": \"\"}`", byBinding},
}

// pathsTable returns the paths. It fails if the code knows others than this file.
func pathsTable(code *source) (string, error) {
	var page strings.Builder
	page.WriteString(pathsIntro)
	var err error
	for _, prefix := range routing.ProcessPaths {
		if !slices.ContainsFunc(endpoints, func(e endpoint) bool { return strings.HasPrefix(e.path, prefix) }) {
			err = errors.Join(err, fmt.Errorf("%s is of the process, and test/tools/reference does not say who may", prefix))
		}
	}
	served := code.statusPaths()
	for _, e := range endpoints {
		if !slices.ContainsFunc(routing.ProcessPaths, func(prefix string) bool { return strings.HasPrefix(e.path, prefix) }) {
			err = errors.Join(err, fmt.Errorf("%s is not of the process", e.path))
		}
		if strings.HasPrefix(e.path, routing.StatusPrefix) && !served[e.path] {
			err = errors.Join(err, fmt.Errorf("test/tools/reference says who may %s, and package endpoints does not serve it", e.path))
		}
		delete(served, e.path)
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", e.path, e.verb, e.answers, e.who)
	}
	for path := range served {
		err = errors.Join(err, fmt.Errorf("%s is served, and test/tools/reference does not say who may", path))
	}
	return page.String() + clusterPaths + frontIntro, err
}

// statusPaths returns the paths of package status that the server has handlers for.
func (s *source) statusPaths() map[string]bool {
	out := map[string]bool{}
	at := func(path string) *goPackage {
		n := slices.IndexFunc(s.packages, func(p *goPackage) bool { return p.path == path })
		return s.packages[n]
	}
	described := at("pkg/server/status")
	take := func(e ast.Expr) {
		if !strings.HasSuffix(selected(e, "status"), "Path") {
			return
		}
		if path, err := described.text(described.constants[selected(e, "status")]); err == nil {
			out[path] = true
		}
	}
	at("pkg/server/endpoints").each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			take(n.Key)
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Handle" && len(n.Args) > 0 {
				take(n.Args[0])
			}
		}
	})
	return out
}
