package edge

import "net/http"

// withSameOrigin returns a handler that refuses what another site has a browser ask for: writes, and websockets. A
// browser shows a client certificate to whoever makes it ask. It does not let another site read an answer, but whatever
// comes over a websocket, so that site would see all that a watch tells. Requests of other programs than browsers say
// nothing of sites.
func withSameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	writes := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.Header.Values("Upgrade")) > 0 {
			asWrite := req.WithContext(req.Context())
			asWrite.Method = http.MethodPost // the protection lets every GET pass
			if err := protection.Check(asWrite); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
		}
		writes.ServeHTTP(w, req)
	})
}
