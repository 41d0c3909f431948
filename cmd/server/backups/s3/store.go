// Package s3 keeps objects in a store that speaks S3.
package s3

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

const (
	// stall is for how long a request may make no progress.
	stall = 30 * time.Second
	// slowest is how many bytes a second a store has to take or give: each request ends some time, whatever it
	// does.
	slowest = 64 << 10
	// partBytes is from how many bytes on an object is put in parts, and how much memory that takes.
	partBytes = 16 << 20
	// maxObjects bounds what a listing may have.
	maxObjects = 500_000
)

// ErrMissing is the error of an object that the store does not have.
var ErrMissing = errors.New("the store does not have it")

// Object is what the store says of an object.
type Object struct {
	// Name is that below the prefix.
	Name     string
	Bytes    int64
	Modified time.Time
}

// Store is what is below a prefix in a bucket. Each call is one try: who calls says when there is another one.
type Store struct {
	url            string
	bucket, prefix string
	client         *minio.Core
	credentials    *credentials.Credentials
	stall          time.Duration
	most           int // how many objects a listing may have
}

// Open returns the store at a URL: https://HOST/BUCKET/PREFIX. It asks nothing. Credentials are where all tools of S3
// look for them: in the environment, in ~/.aws/credentials, or at the machine's role. A file may name further
// authorities for the store's certificate.
func Open(text, caFile string) (*Store, error) { return open(text, caFile, stall) }

func open(text, caFile string, stall time.Duration) (*Store, error) {
	at, err := url.Parse(text)
	if err != nil {
		// err may have a password
		return nil, errors.New("the store's URL cannot be parsed: it must be such as https://HOST/BUCKET/PREFIX")
	}
	bucket, prefix, _ := strings.Cut(strings.Trim(at.Path, "/"), "/")
	switch {
	case at.User != nil:
		return nil, errors.New("the store's URL has credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead, or write them into ~/.aws/credentials")
	case at.Scheme != "https" && at.Scheme != "http", at.Host == "", at.RawQuery != "", at.Fragment != "", bucket == "":
		return nil, fmt.Errorf("the store's URL %s must be such as https://HOST/BUCKET/PREFIX", text)
	}
	if err := errors.Join(s3utils.CheckValidBucketName(bucket), s3utils.CheckValidObjectNamePrefix(prefix)); err != nil {
		return nil, fmt.Errorf("the store's URL %s: %w", text, err)
	}
	if prefix != "" {
		prefix += "/"
	}
	trusted, err := readAuthorities(caFile)
	if err != nil {
		return nil, err
	}
	dial := net.Dialer{Timeout: stall}
	keys := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
	})
	client, err := minio.NewCore(at.Host, &minio.Options{
		Creds:  keys,
		Secure: at.Scheme == "https",
		Transport: &transport{stall: stall, to: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 1 << 20,
		}},
		Region:       cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), s3utils.GetRegionFromURL(*at), "us-east-1"),
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   1,
	})
	if err != nil {
		return nil, fmt.Errorf("the store's URL %s: %w", text, err)
	}
	return &Store{url: strings.TrimSuffix(text, "/"), bucket: bucket, prefix: prefix, client: client, credentials: keys, stall: stall, most: maxObjects}, nil
}

// readAuthorities returns the authorities of the machine, and those in a file. Nil: those of the machine.
func readAuthorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the store: %w", err)
	}
	all, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the machine: %w", err)
	}
	if !all.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return all, nil
}

// String returns the URL.
func (s *Store) String() string { return s.url }

// begin bounds a request that moves so many bytes.
func (s *Store) begin(ctx context.Context, bytes int64) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 4*s.stall+time.Duration(bytes/slowest)*time.Second, errors.New("the store is too slow"))
	who, err := s.client.GetCreds()
	if err == nil && who.SignerType.IsAnonymous() {
		err = errors.New("there are no credentials for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them into ~/.aws/credentials")
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, cancel, nil
}

// fail says what failed, and why.
func (s *Store) fail(ctx context.Context, verb, name string, err error) error {
	if err == nil {
		return nil
	}
	switch answer := minio.ToErrorResponse(err); {
	case answer.Code == minio.NoSuchKey:
		err = ErrMissing
	case answer.StatusCode == http.StatusBadRequest || answer.StatusCode == http.StatusForbidden:
		s.credentials.Expire() // others may be in the file by now
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.DeadlineExceeded) {
		err = cause
	}
	if said := (*url.Error)(nil); errors.As(err, &said) {
		err = said.Err // the URL is said below
	}
	return fmt.Errorf("%s %s: %w", verb, strings.TrimSuffix(s.url+"/"+name, "/"), err)
}

// List returns all objects below the prefix, in the order of their names.
func (s *Store) List(ctx context.Context) (all []Object, err error) {
	bounded, cancel, err := s.begin(ctx, int64(s.most))
	if err != nil {
		return nil, s.fail(ctx, "list", "", err)
	}
	defer cancel()
	for o := range s.client.ListObjectsIter(bounded, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix, Recursive: true}) {
		name, below := strings.CutPrefix(o.Key, s.prefix)
		switch {
		case o.Err != nil:
			return nil, s.fail(bounded, "list", "", o.Err)
		case len(all) == s.most:
			return nil, s.fail(bounded, "list", "", fmt.Errorf("it has more than %d objects: give the backup a prefix of its own", s.most))
		case below:
			all = append(all, Object{name, o.Size, o.LastModified})
		}
	}
	return all, s.fail(bounded, "list", "", context.Cause(bounded)) // a listing that is cut off says nothing
}

// Put writes an object, in place of another one of its name. Others see all of it or nothing.
func (s *Store) Put(ctx context.Context, name string, from *io.SectionReader) error {
	bounded, cancel, err := s.begin(ctx, from.Size())
	if err != nil {
		return s.fail(ctx, "put", name, err)
	}
	defer cancel()
	// Buckets that lock objects demand a sum.
	_, err = s.client.Client.PutObject(bounded, s.bucket, s.prefix+name, from, from.Size(), minio.PutObjectOptions{
		ContentType: "application/octet-stream", SendContentMd5: true, PartSize: partBytes, NumThreads: 1,
	})
	return s.fail(bounded, "put", name, err)
}

// Get writes the first bytes of an object.
func (s *Store) Get(ctx context.Context, name string, bytes int64, to io.Writer) error {
	bounded, cancel, err := s.begin(ctx, bytes)
	if err != nil {
		return s.fail(ctx, "get", name, err)
	}
	defer cancel()
	var options minio.GetObjectOptions
	if err := options.SetRange(0, bytes-1); err != nil {
		return s.fail(ctx, "get", name, err)
	}
	body, _, _, err := s.client.GetObject(allow(bounded, bytes), s.bucket, s.prefix+name, options)
	if err != nil {
		return s.fail(bounded, "get", name, err)
	}
	n, err := io.Copy(to, body)
	err = errors.Join(err, body.Close())
	if err == nil && n != bytes {
		err = fmt.Errorf("the store gives %d bytes of %d", n, bytes)
	}
	return s.fail(bounded, "get", name, err)
}

// Delete removes objects. What is not there is no error.
func (s *Store) Delete(ctx context.Context, names []string) error {
	bounded, cancel, err := s.begin(ctx, 0)
	if err != nil {
		return s.fail(ctx, "delete", names[0], err)
	}
	defer cancel()
	failed, err := s.client.RemoveObjectsWithIter(bounded, s.bucket, s.objects(names), minio.RemoveObjectsOptions{})
	if err != nil {
		return s.fail(bounded, "delete", names[0], err)
	}
	for f := range failed {
		if f.Err != nil {
			return s.fail(bounded, "delete", strings.TrimPrefix(f.ObjectName, s.prefix), f.Err)
		}
	}
	return s.fail(bounded, "delete", names[0], context.Cause(bounded))
}

func (s *Store) objects(names []string) iter.Seq[minio.ObjectInfo] {
	return func(yield func(minio.ObjectInfo) bool) {
		for _, name := range names {
			if !yield(minio.ObjectInfo{Key: s.prefix + name}) {
				return
			}
		}
	}
}
