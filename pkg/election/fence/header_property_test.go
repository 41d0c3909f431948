package fence

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestWhateverIsWrittenIsReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := sound
		token.Holder = rapid.OneOf(rapid.StringN(1, 200, -1), rapid.StringOfN(rapid.SampledFrom([]rune(`a",\%(=;ü`)), 1, 50, -1)).Draw(t, "holder")
		token.Epoch = rapid.Int64Range(0, math.MaxInt32).Draw(t, "epoch")
		text, err := token.HeaderValue()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse([]string{text}); err != nil || got != token {
			t.Fatalf("%s is read as %v, %v", text, got, err)
		}
	})
}
