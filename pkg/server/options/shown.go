package options

import (
	"strings"

	"k8s.io/apiserver/pkg/server/flagz"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/regent-project/regent/pkg/server"
)

// Shown are flags with their values, as /flagz shows them: without the passwords of URLs.
type Shown struct{ FlagSets cliflag.NamedFlagSets }

// GetFlagz implements flagz.Reader.
func (s Shown) GetFlagz() map[string]string {
	all := flagz.NamedFlagSetsReader(s).GetFlagz()
	for name, value := range all {
		if !strings.Contains(value, "://") {
			continue
		}
		list := strings.TrimSuffix(strings.TrimPrefix(value, "["), "]") // as pflag shows a slice
		urls := strings.Split(list, ",")
		for i, u := range urls {
			urls[i] = server.WithoutPassword(u)
		}
		all[name] = strings.Replace(value, list, strings.Join(urls, ","), 1)
	}
	return all
}

var _ flagz.Reader = Shown{}
