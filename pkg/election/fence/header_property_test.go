package fence

import (
	"testing"

	"pgregory.net/rapid"
)

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
