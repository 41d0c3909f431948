package fence

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/dunglas/httpsfv"
	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Header is the HTTP field that carries a token. It is a dictionary of RFC 9651 with exactly these members, in any
// order and without parameters:
//
//	Fencing-Token: cluster="system:admin", lease="kube-system/regent-controllers", uid="...", holder="...", epoch=7
//
// cluster is empty if the server has no logical clusters. holder is a string, or a display string (%"...") if it has
// other characters than printable ASCII.
const Header = "Fencing-Token"

// The longest values that a header may have, in bytes.
const (
	longestHeader = 2048
	longestUID    = 128
	longestHolder = 1024
)

// members are the keys of the dictionary, in the order in which HeaderValue writes them.
var members = []string{"cluster", "lease", "uid", "holder", "epoch"}

// HeaderValue returns t as the value of Header. It fails if t is not the token of a term.
func (t Token) HeaderValue() (string, error) {
	if err := t.validate(); err != nil {
		return "", err
	}
	dictionary := httpsfv.NewDictionary()
	for i, value := range []any{t.Cluster.String(), t.Namespace + "/" + t.Name, string(t.UID), printable(t.Holder), t.Epoch} {
		dictionary.Add(members[i], httpsfv.NewItem(value))
	}
	text, err := httpsfv.Marshal(dictionary)
	if err != nil {
		return "", fmt.Errorf("the token cannot be written as a %s header: %w", Header, err)
	}
	if len(text) > longestHeader {
		return "", fmt.Errorf("the token takes %d bytes as a %s header, more than %d", len(text), Header, longestHeader)
	}
	return text, nil
}

// Parse returns the token in the values of Header in a request; zero if there are none. It is strict: a request with a
// malformed header must not become an unfenced write.
func Parse(values []string) (Token, error) {
	if len(values) == 0 {
		return Token{}, nil
	}
	t, err := parse(values)
	if err != nil {
		return Token{}, fmt.Errorf("malformed %s header: %w", Header, err)
	}
	return t, nil
}

func parse(lines []string) (Token, error) {
	if len(lines) > 1 {
		return Token{}, fmt.Errorf("it is given %d times, want once", len(lines))
	}
	if len(lines[0]) > longestHeader {
		return Token{}, fmt.Errorf("it has %d bytes, more than %d", len(lines[0]), longestHeader)
	}
	dictionary, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return Token{}, err
	}
	// The parser would silently use the last of several equal keys.
	if n := countMembers(lines[0]); n != len(members) || len(dictionary.Names()) != len(members) {
		return Token{}, fmt.Errorf("it has %d members, %d of them different, want exactly %s", n, len(dictionary.Names()), strings.Join(members, ", "))
	}
	values := map[string]any{}
	for _, key := range members {
		if values[key], err = item(dictionary, key); err != nil {
			return Token{}, err
		}
	}
	if display, ok := values["holder"].(httpsfv.DisplayString); ok {
		values["holder"] = string(display)
	}
	var text [4]string
	for i := range text {
		var ok bool
		if text[i], ok = values[members[i]].(string); !ok {
			return Token{}, fmt.Errorf("%s is not a string", members[i])
		}
	}
	epoch, ok := values["epoch"].(int64)
	if !ok {
		return Token{}, errors.New("epoch is not an integer")
	}
	namespace, name, ok := strings.Cut(text[1], "/")
	if !ok {
		return Token{}, fmt.Errorf("lease %q is not <namespace>/<name>", text[1])
	}
	t := Token{
		Cluster: logicalcluster.Name(text[0]), Namespace: namespace, Name: name,
		UID: types.UID(text[2]), Holder: text[3], Epoch: epoch,
	}
	return t, t.validate()
}

// item returns the value of a member, which must not have parameters.
func item(dictionary *httpsfv.Dictionary, key string) (any, error) {
	member, ok := dictionary.Get(key)
	if !ok {
		return nil, fmt.Errorf("%s is missing", key)
	}
	i, ok := member.(httpsfv.Item)
	if !ok {
		return nil, fmt.Errorf("%s is a list", key)
	}
	if len(i.Params.Names()) > 0 {
		return nil, fmt.Errorf("%s has parameters", key)
	}
	return i.Value, nil
}

// validate returns what is wrong with a token that is not zero.
func (t Token) validate() error {
	var errs []error
	if t.Cluster != "" && (!t.Cluster.IsValid() || !t.Cluster.Path().IsValid()) {
		errs = append(errs, fmt.Errorf("cluster %q is not the name of a logical cluster", t.Cluster))
	}
	if len(validation.IsDNS1123Label(t.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(t.Name)) > 0 {
		errs = append(errs, fmt.Errorf("lease %q is not <namespace>/<name>", t.Namespace+"/"+t.Name))
	}
	if t.UID == "" || len(t.UID) > longestUID || printable(string(t.UID)) != string(t.UID) {
		errs = append(errs, fmt.Errorf("uid %q is empty, too long or not printable", t.UID))
	}
	if t.Holder == "" || len(t.Holder) > longestHolder || strings.ToValidUTF8(t.Holder, "") != t.Holder {
		errs = append(errs, fmt.Errorf("holder %q is empty, too long or not UTF-8", t.Holder))
	}
	if t.Epoch < 0 || t.Epoch > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("epoch %d is not between 0 and %d", t.Epoch, math.MaxInt32))
	}
	return errors.Join(errs...)
}

// printable returns text as a string, or as a display string if a string cannot hold it.
func printable(text string) any {
	for i := range len(text) {
		if text[i] < 0x20 || text[i] > 0x7e {
			return httpsfv.DisplayString(text)
		}
	}
	return text
}

// countMembers returns the number of members of a well-formed dictionary: one more than the commas outside of strings
// and lists.
func countMembers(text string) int {
	n, depth, quoted, display := 1, 0, false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && !display && c == '\\': // a display string escapes with %
			i++
		case c == '"':
			quoted, display = !quoted, i > 0 && text[i-1] == '%'
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			n++
		}
	}
	return n
}
