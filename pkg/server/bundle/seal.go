package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
)

// Seal moves an object's content into Sealed, which only who has the identity of a recipient can open.
func Seal(o Object, recipients []age.Recipient) (Object, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, recipients...)
	if err != nil {
		return o, fmt.Errorf("seal %s: %w", o.Key, err)
	}
	if _, err := w.Write(o.Object); err != nil {
		return o, fmt.Errorf("seal %s: %w", o.Key, err)
	}
	if err := w.Close(); err != nil {
		return o, fmt.Errorf("seal %s: %w", o.Key, err)
	}
	o.Object, o.Sealed = nil, out.Bytes()
	return o, nil
}

// maxRecipients is for how many something may be sealed at once.
const maxRecipients = 8

// ParseRecipients returns recipients of age by their texts.
func ParseRecipients(texts []string) (all []age.Recipient, err error) {
	if len(texts) > maxRecipients {
		return nil, fmt.Errorf("%d recipients are given: something can be sealed for %d", len(texts), maxRecipients)
	}
	for _, text := range texts {
		recipient, err := age.ParseX25519Recipient(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no recipient of age, as age-keygen prints them (age1...): %w", text, err)
		}
		all = append(all, recipient)
	}
	return all, nil
}

// ErrSealed is the error of Unseal without an identity of a recipient.
var ErrSealed = errors.New("it is sealed for others: give the file with the identity of one of its recipients")

// Unseal is the inverse of Seal. Objects that are not sealed it returns as they are.
func Unseal(o Object, identities []age.Identity) (Object, error) {
	if o.Sealed == nil {
		return o, nil
	}
	if len(identities) == 0 {
		return o, fmt.Errorf("%s: %w", o.Key, ErrSealed)
	}
	r, err := age.Decrypt(bytes.NewReader(o.Sealed), identities...)
	var others *age.NoIdentityMatchError
	if errors.As(err, &others) {
		return o, fmt.Errorf("%s: %w", o.Key, ErrSealed)
	}
	if err != nil {
		return o, fmt.Errorf("unseal %s: %w", o.Key, err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return o, fmt.Errorf("unseal %s: %w", o.Key, err)
	}
	o.Object, o.Sealed = content, nil
	return o, nil
}
