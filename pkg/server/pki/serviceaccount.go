package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

// ServiceAccountKeyFile is the name of the file that EnsureServiceAccountKey makes.
const ServiceAccountKeyFile = "serviceaccount.key"

// EnsureServiceAccountKey returns the key that signs the tokens of a shard's service accounts. It makes one if there is none: the
// shard's first replica does, and all others need a copy of it.
func EnsureServiceAccountKey(directory string) (crypto.Signer, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the directory for keys (below --root-directory): %w", err)
	}
	if err := refuseWritable(directory); err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(directory, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	name := filepath.Join(directory, ServiceAccountKeyFile)
	if !exists(name) {
		keyPEM, err := newKey()
		if err != nil {
			return nil, err
		}
		if err := writeFile(name, keyPEM); err != nil {
			return nil, err
		}
	}
	return ReadSigner(name)
}

func newKey() (keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, fmt.Errorf("cannot encode a key: %w", err)
	}
	return keyPEM, nil
}

// ReadSigner reads a private key in PEM. It fails if others may use the file.
func ReadSigner(name string) (crypto.Signer, error) {
	keyPEM, err := readKey(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key of service accounts' tokens: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s holds no private key, restore it from another replica, or remove it to have another one made, by which all tokens end: %w", name, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, which cannot sign", name, key)
	}
	return signer, nil
}
