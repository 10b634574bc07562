package app

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// checked is a message with a validation.
type checked interface {
	proto.Message
	ValidateAll() error
}

// envoyed reads YAML as Envoy does: unknown members are errors, and each message is validated, also
// the typed ones inside.
func envoyed(t *testing.T, text string, into checked) {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	errtest.Must(t, err)
	errtest.Must(t, protojson.Unmarshal(data, into))
	if err := into.ValidateAll(); err != nil {
		t.Errorf("the message %T is not valid: %v", into, err)
	}
}

func typed[M checked](t *testing.T, from *anypb.Any, into M) M {
	t.Helper()
	errtest.Must(t, from.UnmarshalTo(into))
	if err := into.ValidateAll(); err != nil {
		t.Errorf("the message %T is not valid: %v", into, err)
	}
	return into
}

// managed returns the connection manager of the only listener.
func managed(t *testing.T, listeners []*listenerv3.Listener) *hcmv3.HttpConnectionManager {
	t.Helper()
	if len(listeners) != 1 {
		t.Fatalf("the page has %d listeners, want 1", len(listeners))
	}
	return typed(t, listeners[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig(), &hcmv3.HttpConnectionManager{})
}

// TestEnvoyPage checks that the page has configurations that Envoy accepts, and that they fail
// closed.
func TestEnvoyPage(t *testing.T) {
	shown := apptest.Blocks(apptest.Page(t, "integrations/envoy.md"), "yaml")
	if len(shown) != 3 {
		t.Fatalf("the page has %d examples, want 3", len(shown))
	}
	boot := &bootstrapv3.Bootstrap{}
	envoyed(t, shown[0], boot)
	clusters := map[string]bool{}
	for _, c := range boot.GetStaticResources().GetClusters() {
		clusters[c.GetName()] = true
		if c.GetName() == "gatehouse" {
			options := typed(t, c.GetTypedExtensionProtocolOptions()["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"], &httpv3.HttpProtocolOptions{})
			if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil {
				t.Error("the cluster for gRPC does not use HTTP/2")
			}
		}
	}
	manager := managed(t, boot.GetStaticResources().GetListeners())
	for _, log := range manager.GetAccessLog() {
		if _, err := log.GetTypedConfig().UnmarshalNew(); err != nil {
			t.Error(err)
		}
	}
	asks := typed(t, manager.GetHttpFilters()[0].GetTypedConfig(), &extauthzv3.ExtAuthz{})
	if asks.GetFailureModeAllow() || !clusters[asks.GetGrpcService().GetEnvoyGrpc().GetClusterName()] || asks.GetWithRequestBody().GetMaxRequestBytes() != 1<<20 ||
		!manager.GetNormalizePath().GetValue() || !manager.GetUseRemoteAddress().GetValue() {
		t.Errorf("the filter is %v, want one that fails closed", asks)
	}
	for _, host := range manager.GetRouteConfig().GetVirtualHosts() {
		for _, name := range header.OfAnswers() {
			for _, spelling := range []string{strings.ToLower(name), strings.ReplaceAll(strings.ToLower(name), "-", "_")} {
				if !slices.Contains(host.GetResponseHeadersToRemove(), spelling) {
					t.Errorf("the configuration does not remove the response header %s", spelling)
				}
			}
		}
		for _, r := range host.GetRoutes() {
			if !clusters[r.GetRoute().GetCluster()] {
				t.Errorf("the configuration has no cluster %q", r.GetRoute().GetCluster())
			}
		}
	}

	route := &routev3.Route{}
	envoyed(t, shown[1], route)
	per := typed(t, route.GetTypedPerFilterConfig()["envoy.filters.http.ext_authz"], &extauthzv3.ExtAuthzPerRoute{})
	if e := per.GetCheckSettings().GetContextExtensions(); e["resource"] != "7" || e["bouncer"] == "" {
		t.Errorf("the context_extensions are %v, want the bouncer's", e)
	}

	filter := &hcmv3.HttpFilter{}
	envoyed(t, shown[2], filter)
	plain := typed(t, filter.GetTypedConfig(), &extauthzv3.ExtAuthz{})
	if plain.GetFailureModeAllow() || plain.GetHttpService().GetPathPrefix() != "/_bouncer/ext_authz" {
		t.Errorf("the filter for HTTP is %v, want one that fails closed", plain)
	}
}

// TestKubernetesPage checks that the settings, ports, volumes and endpoints of the manifests exist.
func TestKubernetesPage(t *testing.T) {
	settings := map[string]bool{}
	for f := range reflect.TypeFor[BouncerConfig]().Fields() {
		settings[f.Tag.Get("env")] = true
	}
	shown := apptest.Blocks(apptest.Page(t, "integrations/kubernetes.md"), "yaml")
	if len(shown) != 2 {
		t.Fatalf("the page has %d examples, want 2", len(shown))
	}
	for i, text := range shown {
		kinds := []string{}
		for doc := range strings.SplitSeq(text, "---\n") {
			var m manifest
			if err := yaml.UnmarshalStrict([]byte(doc), &m); err != nil {
				t.Fatalf("the example %d is not valid: %v", i, err)
			}
			kinds = append(kinds, m.Kind)
			if m.Kind == "Deployment" {
				m.check(t, settings)
			}
		}
		if !slices.Equal(kinds, []string{"Deployment", "Service"}) {
			t.Errorf("the example %d has the kinds %v, want a Deployment and its Service", i, kinds)
		}
	}
}

// manifest is the part of a Deployment or Service that the page shows. Other members are errors.
type manifest struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		Replicas int   `json:"replicas"`
		Selector any   `json:"selector"`
		Ports    []any `json:"ports"`
		Template struct {
			Metadata map[string]any `json:"metadata"`
			Spec     struct {
				Automount  bool           `json:"automountServiceAccountToken"`
				Security   map[string]any `json:"securityContext"`
				Containers []container    `json:"containers"`
				Volumes    []struct {
					Name      string         `json:"name"`
					EmptyDir  map[string]any `json:"emptyDir"`
					ConfigMap map[string]any `json:"configMap"`
				} `json:"volumes"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type container struct {
	Name  string   `json:"name"`
	Image string   `json:"image"`
	Args  []string `json:"args"`
	Env   []struct {
		Name  string         `json:"name"`
		Value string         `json:"value"`
		From  map[string]any `json:"valueFrom"`
	} `json:"env"`
	Ports []struct {
		Name string `json:"name"`
		Port int    `json:"containerPort"`
	} `json:"ports"`
	Ready     *probe         `json:"readinessProbe"`
	Live      *probe         `json:"livenessProbe"`
	Resources map[string]any `json:"resources"`
	Security  map[string]any `json:"securityContext"`
	Mounts    []struct {
		Name     string `json:"name"`
		Path     string `json:"mountPath"`
		ReadOnly bool   `json:"readOnly"`
	} `json:"volumeMounts"`
}

type probe struct {
	HTTP struct {
		Path string `json:"path"`
		Port string `json:"port"`
	} `json:"httpGet"`
	Period int `json:"periodSeconds"`
}

func (m *manifest) check(t *testing.T, settings map[string]bool) {
	t.Helper()
	volumes := map[string]bool{}
	for _, v := range m.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	found := false
	for _, c := range m.Spec.Template.Spec.Containers {
		for _, mount := range c.Mounts {
			if !volumes[mount.Name] {
				t.Errorf("the container %s mounts %s, which is no volume", c.Name, mount.Name)
			}
		}
		if c.Name != "bouncer" {
			continue
		}
		found = true
		set := map[string]string{}
		for _, e := range c.Env {
			set[e.Name] = e.Value
			if !settings[e.Name] {
				t.Errorf("the bouncer has no setting %s", e.Name)
			}
		}
		if set["GATEHOUSE_BOUNCER_UPSTREAM"] == "" && set["GATEHOUSE_BOUNCER_GRPC_LISTEN"] == "" {
			t.Error("the bouncer has no upstream")
		}
		if c.Ready.HTTP.Path != "/_bouncer/ready" || c.Live.HTTP.Path != "/_bouncer/live" || c.Ready.HTTP.Port != c.Ports[0].Name || c.Live.HTTP.Port != c.Ports[0].Name ||
			!strings.HasSuffix(set["GATEHOUSE_BOUNCER_LISTEN"], fmt.Sprint(":", c.Ports[0].Port)) {
			t.Errorf("the container has the probes %+v and %+v, the ports %+v and the settings %v, want them to fit", c.Ready, c.Live, c.Ports, set)
		}
	}
	if !found {
		t.Error("the manifest has no bouncer")
	}
}

// TestPages checks that each gateway has a page, with a configuration that fails closed and a link
// from the README.
func TestPages(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	errtest.Must(t, err)
	pages, err := filepath.Glob("../../docs/integrations/*.md")
	if err != nil || len(pages) < 7 {
		t.Fatalf("the folder has %d pages (%v), want at least 7", len(pages), err)
	}
	for _, p := range pages {
		if name := filepath.Base(p); !strings.Contains(string(readme), "docs/integrations/"+name) {
			t.Errorf("the README does not link %s", name)
		}
	}
	var traefik struct {
		HTTP struct {
			Routers     map[string]struct{ Middlewares []string }
			Middlewares map[string]struct{ ForwardAuth map[string]any }
		}
	}
	errtest.Must(t, yaml.Unmarshal([]byte(apptest.Blocks(apptest.Page(t, "integrations/traefik.md"), "yaml")[0]), &traefik))
	auth := traefik.HTTP.Middlewares[traefik.HTTP.Routers["shop"].Middlewares[0]].ForwardAuth
	if auth["trustForwardHeader"] != false || !strings.HasSuffix(fmt.Sprint(auth["address"]), "/_bouncer/auth") || auth["authRequestHeaders"] == nil || auth["authResponseHeaders"] == nil {
		t.Errorf("the middleware of Traefik is %v, want the bouncer's address", auth)
	}
}
