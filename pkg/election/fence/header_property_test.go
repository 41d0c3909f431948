package fence

import (
	"testing"

	"pgregory.net/rapid"
)

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
		strings.Replace(soundHeader, "kube-system/", "", 1):                     "<namespace>/<name>",
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

func TestWhateverIsWrittenIsReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := sound
		token.Holder = rapid.StringN(0, 200, -1).Draw(t, "holder")
		token.UID = sound.UID
		token.Epoch = rapid.Int64().Draw(t, "epoch")
		text, err := token.HeaderValue()
		if err != nil {
			return // not a token, or too long
		}
		if got, err := Parse([]string{text}); err != nil || got != token {
			t.Fatalf("%s is read as %v, %v", text, got, err)
		}
	})
}
