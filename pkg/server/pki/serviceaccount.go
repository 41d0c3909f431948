package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

// serviceAccountKeyFile is the name of the file that EnsureServiceAccountKey makes.
const serviceAccountKeyFile = "serviceaccount.key"

// EnsureServiceAccountKey returns the key that signs the tokens of a shard's service accounts. It makes one if there is
// none.
//
// All replicas of a shard need the same. Those of a shard that has joined an installation get no copy of the directory,
// but a membership; and directories were copied before there was this key. So a new key is derived from one that all
// replicas have: the authority's, the member's or the admin's. It is written down, because those may be replaced: then
// replicas with new directories need a copy.
func EnsureServiceAccountKey(directory string) (crypto.Signer, error) {
	unlock, err := makeAndLock(directory)
	if err != nil {
		return nil, err
	}
	defer unlock()
	name := filepath.Join(directory, serviceAccountKeyFile)
	if !exists(name) {
		keyPEM, err := derivedKey(directory)
		if err != nil {
			return nil, err
		}
		if err := writeFile(name, keyPEM); err != nil {
			return nil, err
		}
	}
	return ReadSigner(name)
}

// derivedFor separates the derived key from any other that may be derived from the same one.
const derivedFor = "regent.dev: tokens of service accounts"

// derivedKey returns a key that follows from another one of the directory, and does not tell anything about that.
func derivedKey(directory string) (keyPEM []byte, err error) {
	from, err := sharedKey(directory)
	if err != nil {
		return nil, err
	}
	for n := 0; ; n++ { // one of some 4 billion numbers is no private key
		secret, err := hkdf.Key(sha256.New, from, nil, fmt.Sprintf("%s %d", derivedFor, n), sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("cannot make the key of service accounts' tokens: %w", err)
		}
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
		if err != nil {
			continue
		}
		if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
			return nil, fmt.Errorf("cannot encode the key of service accounts' tokens: %w", err)
		}
		return keyPEM, nil
	}
}

// sharedKey returns a private key that all replicas of the shard have.
func sharedKey(directory string) (der []byte, err error) {
	for _, name := range []string{CAKeyFile, MemberKeyFile, AdminKeyFile} {
		if file := filepath.Join(directory, name); exists(file) {
			key, err := ReadSigner(file)
			if err != nil {
				return nil, err
			}
			if der, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
				return nil, fmt.Errorf("cannot encode %s: %w", file, err)
			}
			return der, nil
		}
	}
	return nil, fmt.Errorf("%s has no key from which that of service accounts' tokens could be derived: copy %s from another replica, or give --service-account-signing-key-file", directory, serviceAccountKeyFile)
}

// ReadSigner reads a private key in PEM. It fails if others may use the file.
func ReadSigner(name string) (crypto.Signer, error) {
	keyPEM, err := readKey(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read a private key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s holds no private key, restore it from another replica: %w", name, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, which cannot sign", name, key)
	}
	return signer, nil
}
