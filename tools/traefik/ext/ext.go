// Package ext replaces Traefik's package of the same name, which is in a separate module that is
// never published: two empty extension points of its dynamic configuration. With it, and with the
// forks that Traefik's go.mod names, a stock Traefik builds from the module proxy.
package ext

// HTTP is an empty extension of Traefik's dynamic HTTP configuration.
type HTTP struct{}

// DeepCopyInto does nothing.
func (*HTTP) DeepCopyInto(*HTTP) {}

// Router is an empty extension of a router's configuration.
type Router struct{}

// DeepCopyInto does nothing.
func (*Router) DeepCopyInto(*Router) {}
