package serviceaccounts

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	jose "gopkg.in/go-jose/go-jose.v2"
)

// minimumRSA is the size of the smallest RSA keys that are accepted, in bits.
const minimumRSA = 2048

// Keys are the keys of tokens. One signs. It and further ones, which have signed before or will sign, are accepted.
type Keys struct {
	signer   jose.Signer
	accepted map[string]accepted // by the key's id
}

// accepted is a public key, and the only algorithm that it is for.
type accepted struct {
	key       crypto.PublicKey
	algorithm jose.SignatureAlgorithm
}

// NewKeys returns keys. They are ECDSA or RSA.
func NewKeys(signing crypto.Signer, further ...crypto.PublicKey) (*Keys, error) {
	k := &Keys{accepted: map[string]accepted{}}
	for _, key := range append(further, signing.Public()) {
		if err := k.accept(key); err != nil {
			return nil, err
		}
	}
	id, err := idOf(signing.Public())
	if err != nil {
		return nil, err
	}
	k.signer, err = jose.NewSigner(jose.SigningKey{
		Algorithm: k.accepted[id].algorithm, Key: jose.JSONWebKey{Key: signing, KeyID: id},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("the key of service accounts' tokens cannot sign: %w", err)
	}
	return k, nil
}

// accept adds a key. Nothing else may use k meanwhile.
func (k *Keys) accept(key crypto.PublicKey) error {
	id, err := idOf(key)
	if err != nil {
		return err
	}
	algorithm, err := algorithmOf(key)
	if err != nil {
		return err
	}
	k.accepted[id] = accepted{key, algorithm}
	return nil
}

// idOf returns the name of a key in tokens: the SHA-256 of it.
func idOf(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("a key of service accounts' tokens cannot be encoded: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

func algorithmOf(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minimumRSA {
			return "", fmt.Errorf("a key of service accounts' tokens is an RSA key of %d bits: give one of at least %d, or an ECDSA key", bits, minimumRSA)
		}
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve.Params().BitSize {
		case 256:
			return jose.ES256, nil
		case 384:
			return jose.ES384, nil
		case 521:
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("a key of service accounts' tokens is a %T: give an ECDSA key of P-256, P-384 or P-521, or an RSA key", key)
}

// verify returns the payload of a token in compact form that the key with an id has signed, with the algorithm that the
// key is for.
func (k *Keys) verify(token, key string) ([]byte, error) {
	signed, err := jose.ParseSigned(token)
	if err != nil {
		return nil, fmt.Errorf("the token cannot be parsed: %w", err)
	}
	header := signed.Signatures[0].Header
	if header.KeyID != key {
		return nil, fmt.Errorf("the token names two keys, %.64q and %.64q", key, header.KeyID)
	}
	by, ok := k.accepted[header.KeyID]
	if !ok {
		return nil, fmt.Errorf("the token is signed by key %.64q, which this replica does not have: all replicas of a shard need the same pki/, and --service-account-key-file names the keys of before", header.KeyID)
	}
	if header.Algorithm != string(by.algorithm) {
		return nil, fmt.Errorf("the token is signed by %.16q, and its key is for %s", header.Algorithm, by.algorithm)
	}
	payload, err := signed.Verify(by.key)
	if err != nil {
		return nil, fmt.Errorf("the token's signature is wrong: %w", err)
	}
	return payload, nil
}
