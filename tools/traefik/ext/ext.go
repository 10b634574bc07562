// Package ext stands in for the one of the same name that Traefik keeps in a
// module of its own and never publishes: two empty extension points of its
// dynamic configuration. With it, and with the forks that Traefik's go.mod
// names, a stock Traefik builds from the module proxy.
package ext

// HTTP extends Traefik's dynamic HTTP configuration by nothing.
type HTTP struct{}

// DeepCopyInto copies nothing, as there is nothing to copy.
func (*HTTP) DeepCopyInto(*HTTP) {}

// Router extends a router's configuration by nothing.
type Router struct{}

// DeepCopyInto copies nothing, as there is nothing to copy.
func (*Router) DeepCopyInto(*Router) {}
