package leader

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// secretKey is the key in a Secret that holds the probe's secret.
	secretKey = "probe-secret"
	// shortestSecret and madeSecret are lengths in bytes.
	shortestSecret, madeSecret = 16, 32
)

// secretClient is the part of corev1client.SecretInterface that is used, for the Lease's namespace.
type secretClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, secret *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error)
}

// awaitSecret returns the probe's secret as soon as there is one, or ctx's cause. Replicas must agree on it before they
// can see each other, so this process does not campaign without.
func awaitSecret(ctx context.Context, cfg Config, client secretClient, held func(why string)) (secret []byte, err error) {
	return secret, insist(ctx, held, "Cannot get the probe's secret: this process does not campaign until it can", func(ctx context.Context) error {
		secret, err = readSecret(ctx, cfg, client)
		return err
	})
}

// readSecret makes one attempt.
func readSecret(ctx context.Context, cfg Config, client secretClient) ([]byte, error) {
	switch {
	case cfg.SecretBytes != nil:
		return cfg.SecretBytes, nil
	case cfg.SecretFile != "":
		text, err := os.ReadFile(cfg.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("leader: Config.SecretFile: %w", err)
		}
		if text = bytes.TrimSpace(text); len(text) < shortestSecret {
			return nil, fmt.Errorf("leader: Config.SecretFile %s has %d bytes: write %d at least, the same for all replicas", cfg.SecretFile, len(text), shortestSecret)
		}
		return text, nil
	}
	return sharedSecret(ctx, cfg.Namespace, cfg.SecretName, client)
}

// sharedSecret gets the Secret of that name, or creates it. Of several replicas that do so at once one creates it, and
// the others get that one's.
func sharedSecret(ctx context.Context, namespace, name string, client secretClient) ([]byte, error) {
	stored, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made := make([]byte, madeSecret)
		_, _ = rand.Read(made) // it never fails
		stored, err = client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{secretKey: made},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			stored, err = client.Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("leader: Config.SecretName: cannot get or create Secret %s/%s (it takes the verbs get and create): %w", namespace, name, err)
	}
	if secret := stored.Data[secretKey]; len(secret) >= shortestSecret {
		return secret, nil
	}
	return nil, fmt.Errorf("leader: Config.SecretName: Secret %s/%s has no %d bytes or more under the key %s: delete it, and a replica makes another", namespace, name, shortestSecret, secretKey)
}
