package join

// upstream are the functions of goroutines that are left alone: they outlive who has started them, others use them too, and they call
// nobody's code that could write. None of them is on the stack of a goroutine that waits for an answer. A name that ends in ".func" is that of
// closures: the function itself also runs on the stack of its caller.
var upstream = []string{
	// Connections of HTTP/1 and HTTP/2.
	"net/http.(*persistConn).readLoop",
	"net/http.(*persistConn).writeLoop",
	"net/http.(*http2ClientConn).readLoop",
	"net/http/internal/http2.(*ClientConn).readLoop",
	"golang.org/x/net/http2.(*ClientConn).readLoop",
	// Dialling goes on when the request that began it is cancelled: the connection is then free for the next.
	"net/http.(*Transport).dialConnFor",
	"net/http.(*persistConn).addTLS.func",
	"net/http.(*http2dialCall).dial",
	"net/http.(*http2addConnCall).run",
	"net/http/internal/http2.(*dialCall).dial",
	"net/http/internal/http2.(*addConnCall).run",
	"golang.org/x/net/http2.(*dialCall).dial",
	"golang.org/x/net/http2.(*addConnCall).run",
	"net.(*netFD).connect.func",
	"net.(*sysDialer).dialParallel.func",
	// Lookups of one name are shared.
	"internal/singleflight.(*Group).doCall",
	"net.doBlockingWithCtx.func",
	"net.dnsWaitGroupDone",
	"net.(*Resolver).goLookupIPCNAMEOrder.func",
	// Clients' connections of gRPC. Calls and streams are not among them.
	"google.golang.org/grpc/internal/transport.(*http2Client).reader",
	"google.golang.org/grpc/internal/transport.(*http2Client).keepalive",
	"google.golang.org/grpc/internal/transport.NewHTTP2Client.func",
	"google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run",
	"google.golang.org/grpc/internal/resolver/dns.(*dnsResolver).watcher",
	"google.golang.org/grpc.(*addrConn).connect",
	"google.golang.org/grpc.(*addrConn).resetTransportAndUnlock",
	// The first call of signal.Notify starts it, and it never ends.
	"os/signal.loop",
}
