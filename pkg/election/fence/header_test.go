package fence

import (
	"strings"
	"testing"
)

var sound = Token{Cluster: "system:admin", Namespace: "kube-system", Name: "regent-controllers", UID: "0b1c", Holder: "host_uuid", Epoch: 7}

const soundHeader = `cluster="system:admin", lease="kube-system/regent-controllers", uid="0b1c", holder="host_uuid", epoch=7`

func TestATokenTravelsInAHeader(t *testing.T) {
	got, err := sound.HeaderValue()
	if err != nil || got != soundHeader {
		t.Errorf("wrote %s, %v", got, err)
	}
	for _, text := range []string{
		soundHeader,
		`epoch=7,holder="host_uuid",  uid="0b1c" ,lease="kube-system/regent-controllers",cluster="system:admin"`,
		`cluster="system:admin", lease="kube-system/regent-controllers", uid="0b1c", holder=%"host_uuid", epoch=7`,
	} {
		if parsed, err := Parse([]string{text}); err != nil || parsed != sound {
			t.Errorf("%s is read as %v, %v", text, parsed, err)
		}
	}
	if none, err := Parse(nil); err != nil || !none.IsZero() {
		t.Errorf("no header is read as %v, %v", none, err)
	}
}

// A header that was parsed, written and parsed again has the same meaning.
func FuzzParse(f *testing.F) {
	f.Add(soundHeader)
	f.Add(soundHeader + ", epoch=8")
	f.Add(strings.Replace(soundHeader, "host_uuid", `a\"b, c=\\`, 1))
	f.Add(strings.Replace(soundHeader, `"host_uuid"`, `%"f%c3%bc"`, 1))
	f.Fuzz(func(t *testing.T, text string) {
		token, err := Parse([]string{text})
		if err != nil {
			if !token.IsZero() {
				t.Errorf("%q is refused and read as %v", text, token)
			}
			return
		}
		again, err := token.HeaderValue()
		if err != nil {
			t.Fatalf("%q is read as %v, which cannot be written: %v", text, token, err)
		}
		if second, err := Parse([]string{again}); err != nil || second != token {
			t.Errorf("%q is read as %v, written as %s and read as %v, %v", text, token, again, second, err)
		}
	})
}
