package outbound

import (
	"context"
	"net/http"

	"github.com/minio/minio-go/v7/pkg/signer"
)

// emptySum is the SHA-256 of the body of a GET.
const emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// SignS3 signs a GET of an object with AWS Signature Version 4. sessionToken is the session token of
// temporary keys; empty for permanent keys.
func (r *Request) SignS3(ctx context.Context, accessKey, secretKey, sessionToken, region string) error {
	bare, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL, http.NoBody)
	if err != nil {
		return unreachable(err)
	}
	bare.Header.Set("X-Amz-Content-Sha256", emptySum)
	signed := signer.SignV4(*bare, accessKey, secretKey, sessionToken, region)
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Content-Sha256"} {
		r.Header[name] = []string{signed.Header.Get(name)}
	}
	if sessionToken != "" {
		r.Header["X-Amz-Security-Token"] = []string{signed.Header.Get("X-Amz-Security-Token")}
	}
	return nil
}
