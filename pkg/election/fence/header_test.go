package fence

import (
	"math"
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
	for name, change := range map[string]func(*Token){
		"the longest holder":       func(t *Token) { t.Holder = strings.Repeat("x", longestHolder) },
		"a holder with a quote":    func(t *Token) { t.Holder = `a", epoch=8` },
		"one that ends with it":    func(t *Token) { t.Holder = `a\` },
		"a holder that is escaped": func(t *Token) { t.Holder = `a\", epoch=8` },
		"the last epoch":           func(t *Token) { t.Epoch = math.MaxInt32 },
	} {
		token := sound
		change(&token)
		text, err := token.HeaderValue()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if parsed, err := Parse([]string{text}); err != nil || parsed != token {
			t.Errorf("%s: %s is read as %v, %v", name, text, parsed, err)
		}
	}
	if none, err := Parse(nil); err != nil || !none.IsZero() {
		t.Errorf("no header is read as %v, %v", none, err)
	}
}

// Most servers have no logical clusters.
func TestATokenWithoutALogicalClusterTravelsToo(t *testing.T) {
	plain := sound
	plain.Cluster = ""
	text, err := plain.HeaderValue()
	if err != nil || !strings.HasPrefix(text, `cluster="", `) {
		t.Errorf("wrote %s, %v", text, err)
	}
	if got, err := Parse([]string{text}); err != nil || got != plain {
		t.Errorf("%s is read as %v, %v", text, got, err)
	}
}

func TestAMalformedHeaderIsRefusedAndSaysWhy(t *testing.T) {
	for text, says := range map[string]string{
		"":      "0 of them different",
		"epoch": "1 members",
		strings.Replace(soundHeader, ", epoch=7", "", 1):                        "4 members",
		soundHeader + ", epoch=7":                                               "6 members",
		soundHeader + `, more="x"`:                                              "6 members",
		strings.Replace(soundHeader, "uid=", "epoch=", 1):                       "4 of them different",
		strings.Replace(soundHeader, "uid=", "UID=", 1):                         "malformed",
		strings.Replace(soundHeader, "uid=", "guid=", 1):                        "uid is missing",
		strings.Replace(soundHeader, "epoch=7", `epoch="7"`, 1):                 "epoch is not an integer",
		strings.Replace(soundHeader, "epoch=7", "epoch=7.0", 1):                 "epoch is not an integer",
		strings.Replace(soundHeader, "epoch=7", "epoch", 1):                     "epoch is not an integer",
		strings.Replace(soundHeader, "epoch=7", "epoch=-7", 1):                  "epoch -7",
		strings.Replace(soundHeader, "epoch=7", "epoch=2147483648", 1):          "epoch 2147483648",
		strings.Replace(soundHeader, "epoch=7", "epoch=7;sure", 1):              "epoch has parameters",
		strings.Replace(soundHeader, `uid="0b1c"`, `uid=("0b1c")`, 1):           "uid is a list",
		strings.Replace(soundHeader, `uid="0b1c"`, `uid=token`, 1):              "uid is not a string",
		strings.Replace(soundHeader, `uid="0b1c"`, `uid=%"0b1c"`, 1):            "uid is not a string",
		strings.Replace(soundHeader, `uid="0b1c"`, `uid=""`, 1):                 `uid ""`,
		strings.Replace(soundHeader, "kube-system/", "", 1):                     `lease "regent-controllers" is not <namespace>/<name>`,
		strings.Replace(soundHeader, "kube-system/", "kube-system/a/", 1):       "<namespace>/<name>",
		strings.Replace(soundHeader, "system:admin", "system:admin:", 1):        "logical cluster",
		strings.Replace(soundHeader, "system:admin", "*", 1):                    "logical cluster",
		strings.Replace(soundHeader, "host_uuid", "", 1):                        `holder ""`,
		strings.Replace(soundHeader, "host_uuid", strings.Repeat("x", 1025), 1): "too long",
		soundHeader + strings.Repeat(" ", longestHeader):                        "more than 2048",
		"\x00": "malformed",
	} {
		if got, err := Parse([]string{text}); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), Header) {
			t.Errorf("%q is read as %v, %v; want an error that says %s", text, got, err, says)
		}
	}
	if _, err := Parse([]string{soundHeader, soundHeader}); err == nil || !strings.Contains(err.Error(), "2 times") {
		t.Errorf("two headers: %v", err)
	}
	if _, err := (Token{}).HeaderValue(); err == nil {
		t.Error("the zero token was written")
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
