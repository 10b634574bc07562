package extauthz

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Limits on clients of the server.
const (
	// maxMessage limits a CheckRequest: a body of 1 MiB, which may have grown as text, and the
	// head.
	maxMessage = 4 << 20
	maxHeader  = 64 << 10
	maxStreams = 1024
	handshake  = 10 * time.Second
	pingsApart = 5 * time.Second
)

// Server is the Authorization service on gRPC.
type Server struct {
	authv3.UnimplementedAuthorizationServer
	grpc   *grpc.Server
	decide Decide
}

// NewServer returns a server. secure may be nil, for plain text.
func NewServer(decide Decide, secure *tls.Config) *Server {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeader), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsApart, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	}
	if secure != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(secure)))
	}
	s := &Server{grpc: grpc.NewServer(opts...), decide: decide}
	authv3.RegisterAuthorizationServer(s.grpc, s)
	return s
}

// Check implements authv3.AuthorizationServer.
func (s *Server) Check(ctx context.Context, req *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return write(s.decide(ctx, read(req, peerOf(ctx)))), nil
}

// Metadata returns the metadata of the call, by name in lower case; nil if it has none.
func Metadata(ctx context.Context) map[string][]string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md
}

// peerOf returns the address of the client; invalid if it has none.
func peerOf(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	at, _ := netip.ParseAddrPort(p.Addr.String())
	return at.Addr().Unmap()
}

// Serve serves a listener until Stop, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Stop waits for running checks until ctx ends, and then closes the rest.
func (s *Server) Stop(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	defer stop()
	s.grpc.GracefulStop()
}
