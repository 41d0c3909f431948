package join

// upstream are functions of goroutines that are left alone: they outlive who has started them, others use them too, and
// they call nobody's code that could write. None of them is on the stack of a goroutine that waits for an answer.
var upstream = []string{
	// Connections of HTTP/1 and HTTP/2.
	"net/http.(*persistConn).readLoop",
	"net/http.(*persistConn).writeLoop",
	"net/http.(*http2ClientConn).readLoop",
	"net/http/internal/http2.(*ClientConn).readLoop",
	"golang.org/x/net/http2.(*ClientConn).readLoop",
	// Dialling goes on when the request that began it is cancelled: the connection is then free for the next.
	"net/http.(*Transport).dialConnFor",
	"net/http.(*http2dialCall).dial",
	"net/http.(*http2addConnCall).run",
	"net/http/internal/http2.(*dialCall).dial",
	"net/http/internal/http2.(*addConnCall).run",
	"golang.org/x/net/http2.(*dialCall).dial",
	"golang.org/x/net/http2.(*addConnCall).run",
	// Lookups of one name are shared.
	"internal/singleflight.(*Group).doCall",
	// Clients' connections of gRPC. Calls and streams are not among them.
	"google.golang.org/grpc/internal/transport.(*http2Client).reader",
	"google.golang.org/grpc/internal/transport.(*http2Client).keepalive",
	"google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run",
	"google.golang.org/grpc/internal/resolver/dns.(*dnsResolver).watcher",
	"google.golang.org/grpc.(*addrConn).connect",
	"google.golang.org/grpc.(*addrConn).resetTransportAndUnlock",
	// The first call of signal.Notify starts it, and it never ends.
	"os/signal.loop",
}

// upstreamClosures are functions that start goroutines with their closures, which are left alone like upstream. The
// functions run, and call closures, on the goroutine of their caller too, which is waited for.
var upstreamClosures = []string{
	"net/http.(*persistConn).addTLS",
	"net.(*netFD).connect",
	"net.(*sysDialer).dialParallel",
	"net.(*Resolver).lookupIPAddr",
	"net.(*Resolver).goLookupIPCNAMEOrder",
	"net.doBlockingWithCtx",
	"google.golang.org/grpc/internal/transport.NewHTTP2Client",
}
