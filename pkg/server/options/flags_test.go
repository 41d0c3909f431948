package options

import (
	"testing"
)

func TestFlagsAreShownWithoutPasswords(t *testing.T) {
	o := New()
	flags := o.Flags()
	for name, c := range map[string]struct{ given, shown string }{
		"etcd-servers":                   {"https://root:secret@127.0.0.1:1,http://127.0.0.1:2", "[https://root:xxxxx@127.0.0.1:1,http://127.0.0.1:2]"},
		"shard-base-url":                 {"https://shard.example:6443", "https://shard.example:6443"},
		"shard-name":                     {"eu1", "eu1"},
		"client-ca-file":                 {"users.crt", "users.crt"},
		"leader-election-renew-deadline": {"9s", "9s"},
	} {
		for _, set := range flags.FlagSets {
			if set.Lookup(name) != nil {
				if err := set.Set(name, c.given); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := (PublicFlags{flags}).GetFlagz()[name]; got != c.shown {
			t.Errorf("--%s=%s is shown as %q, want %q", name, c.given, got, c.shown)
		}
	}
}
