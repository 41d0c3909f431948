package conformance

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/formatter"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/kubectl"
)

// Flags of the specs themselves have to be there before any is read, and to be read before the specs are listed.
func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	os.Exit(m.Run())
}

// reported is what Ginkgo says when all specs are done: of each spec, also of those that did not run.
var reported types.Report

var _ = ginkgo.ReportAfterSuite("for the comparison", func(r ginkgo.Report) { reported = r })

// runSpecs runs the specs of these titles against a server, and returns the results of all specs that there are.
func runSpecs(t *testing.T, url, kubeconfig string, titles []string) []result {
	t.Helper()
	klog.EnableContextualLogging(true)
	tested := &framework.TestContext
	tested.Host, tested.KubeConfig, tested.KubectlPath = url, kubeconfig, absolute(t, *kubectl)
	tested.Provider = "skeleton"
	tested.AllowedNotReadyNodes = -1 // there are none, and nothing may wait for any
	tested.DumpLogsOnFailure = false // of pods
	framework.AfterReadingAllFlags(tested)
	gomega.RegisterFailHandler(framework.Fail)

	out, err := os.Create(filepath.Join(*logs, "specs.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	formatter.ColorableStdOut = out
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.Timeout, reporter.NoColor = time.Hour, true
	for _, title := range titles {
		suite.FocusStrings = append(suite.FocusStrings, group.String()+regexp.QuoteMeta(title)+"$")
	}
	ginkgo.RunSpecs(verdictsAreOurs{}, "Kubernetes' specs", suite, reporter)
	return results(reported.SpecReports)
}

// group matches what names the group of people that looks after a spec, with which its text begins.
var group = regexp.MustCompile(`\[sig-[a-z-]+\] `)

func results(reports []types.SpecReport) (all []result) {
	for _, r := range reports {
		if r.LeafNodeType != types.NodeTypeIt {
			continue
		}
		one := result{title: group.ReplaceAllString(r.FullText(), ""), took: r.RunTime, said: r.Failure.Message}
		switch {
		case r.State == types.SpecStatePassed:
			one.outcome = passes
		case r.State.Is(types.SpecStateFailureStates):
			one.outcome = fails
		}
		all = append(all, one)
	}
	return all
}

// verdictsAreOurs keeps Ginkgo from failing the test because of a spec that is known to fail.
type verdictsAreOurs struct{}

// Fail implements ginkgo.GinkgoTestingT.
func (verdictsAreOurs) Fail() {}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
