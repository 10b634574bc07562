package devdocs

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// sample is the code that calls an operation, in one language. It reads GATEHOUSE_URL,
// GATEHOUSE_API_KEY and GATEHOUSE_TENANT from the environment, so that there is no key in the code.
type sample struct {
	ID, Label, Code string
}

// call has the parts of a call that all samples of an operation share.
type call struct {
	method string
	target string // path and query
	// headers are the headers of the call. If variable is set, the value is text followed by the
	// value of that environment variable.
	headers []header
	body    string // JSON on several lines; empty means none
}

type header struct{ name, text, variable string }

func samples(op *operation) []sample {
	if op.Socket {
		return socketSamples(op)
	}
	c := callOf(op)
	return []sample{{"curl", "curl", c.curl()}, {"go", "Go", c.golang()}, {"python", "Python", c.python()}, {"javascript", "JavaScript", c.javascript()}}
}

func callOf(op *operation) call {
	c := call{method: op.Method, target: op.Path}
	query := url.Values{}
	tenant := false
	for _, p := range op.Params {
		switch {
		case p.In == "path":
			c.target = strings.ReplaceAll(c.target, "{"+p.Name+"}", url.PathEscape(p.Example))
		case p.In == "query" && p.Required:
			query.Set(p.Name, p.Example)
		case p.Name == "X-Tenant-ID":
			tenant = true
		}
	}
	if len(query) > 0 {
		c.target += "?" + query.Encode()
	}
	switch op.Auth {
	case "any", "optional":
		c.headers = append(c.headers, header{"X-API-Key", "", "GATEHOUSE_API_KEY"})
	case "bearer":
		c.headers = append(c.headers, header{"Authorization", "Bearer ", "GATEHOUSE_API_KEY"})
	}
	if tenant {
		c.headers = append(c.headers, header{"X-Tenant-ID", "", "GATEHOUSE_TENANT"})
	}
	for _, p := range op.Params {
		if p.In == "header" && p.Required {
			c.headers = append(c.headers, header{p.Name, p.Example, ""})
		}
	}
	if op.Request != nil && op.Request.Example != "" {
		c.body = op.Request.Example
		c.headers = append(c.headers, header{"Content-Type", "application/json", ""})
	}
	return c
}

// shellQuote returns a text as one word of a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// shellVariable returns a word of a POSIX shell: the value of a variable, with texts before and
// after it.
func shellVariable(before, variable, after string) string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")
	return `"` + quote.Replace(before) + "$" + variable + quote.Replace(after) + `"`
}

func (c call) curl() string {
	var b strings.Builder
	b.WriteString("curl -sS")
	if c.method != "GET" {
		b.WriteString(" -X " + c.method)
	}
	b.WriteString(" " + shellVariable("", "GATEHOUSE_URL", c.target))
	for _, h := range c.headers {
		b.WriteString(" \\\n  -H ")
		if h.variable != "" {
			b.WriteString(shellVariable(h.name+": "+h.text, h.variable, ""))
		} else {
			b.WriteString(shellQuote(h.name + ": " + h.text))
		}
	}
	if c.body != "" {
		b.WriteString(" \\\n  -d " + shellQuote(c.body))
	}
	return b.String()
}

// goText returns a text as a Go literal. A text of several lines becomes a raw literal if possible.
func goText(s string) string {
	if strings.Contains(s, "\n") && strconv.CanBackquote(strings.ReplaceAll(s, "\n", "")) {
		return "`" + s + "`"
	}
	return strconv.Quote(s)
}

func (c call) golang() string {
	body, imports := "nil", ""
	if c.body != "" {
		body, imports = "strings.NewReader("+goText(c.body)+")", "\n\t\"strings\""
	}
	var headers strings.Builder
	for _, h := range c.headers {
		value := strconv.Quote(h.text)
		if h.variable != "" {
			value = fmt.Sprintf("os.Getenv(%q)", h.variable)
			if h.text != "" {
				value = strconv.Quote(h.text) + "+" + value
			}
		}
		fmt.Fprintf(&headers, "\treq.Header.Set(%q, %s)\n", h.name, value)
	}
	return `package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"` + imports + `
)

func main() {
	req, err := http.NewRequest("` + c.method + `", os.Getenv("GATEHOUSE_URL")+` + strconv.Quote(c.target) + `, ` + body + `)
	if err != nil {
		log.Fatal(err)
	}
` + headers.String() + `	res, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	fmt.Println(res.Status, string(body), err)
}`
}

func (c call) python() string {
	var b strings.Builder
	b.WriteString("import json\nimport os\nimport urllib.request\n\n")
	if c.body == "" {
		b.Reset()
		b.WriteString("import os\nimport urllib.request\n\n")
	}
	fmt.Fprintf(&b, "req = urllib.request.Request(\n    os.environ[\"GATEHOUSE_URL\"] + %s,\n    method=%s,\n    headers={", compact(c.target), compact(c.method))
	for i, h := range c.headers {
		if i == 0 {
			b.WriteByte('\n')
		}
		value := compact(h.text)
		if h.variable != "" {
			value = "os.environ[" + compact(h.variable) + "]"
			if h.text != "" {
				value = compact(h.text) + " + " + value
			}
		}
		fmt.Fprintf(&b, "        %s: %s,\n", compact(h.name), value)
	}
	if len(c.headers) > 0 {
		b.WriteString("    ")
	}
	b.WriteString("},\n")
	if c.body != "" {
		var v any
		_ = json.Unmarshal([]byte(c.body), &v) // the body was written as JSON
		fmt.Fprintf(&b, "    data=json.dumps(%s).encode(),\n", pythonValue(v, "    "))
	}
	b.WriteString(")\nwith urllib.request.urlopen(req) as res:\n    print(res.status, res.read().decode())")
	return b.String()
}

// pythonValue returns a JSON value as a Python literal.
func pythonValue(v any, indent string) string {
	inner := indent + "    "
	switch x := v.(type) {
	case nil:
		return "None"
	case bool:
		if x {
			return "True"
		}
		return "False"
	case []any:
		if len(x) == 0 {
			return "[]"
		}
		out := "[\n"
		for _, item := range x {
			out += inner + pythonValue(item, inner) + ",\n"
		}
		return out + indent + "]"
	case map[string]any:
		if len(x) == 0 {
			return "{}"
		}
		out := "{\n"
		for _, name := range slices.Sorted(maps.Keys(x)) {
			out += inner + compact(name) + ": " + pythonValue(x[name], inner) + ",\n"
		}
		return out + indent + "}"
	default:
		return compact(x) // strings and numbers are as in JSON
	}
}

func (c call) javascript() string {
	var b strings.Builder
	fmt.Fprintf(&b, "const res = await fetch(process.env.GATEHOUSE_URL + %s, {\n  method: %s,\n", compact(c.target), compact(c.method))
	if len(c.headers) > 0 {
		b.WriteString("  headers: {\n")
		for _, h := range c.headers {
			value := compact(h.text)
			if h.variable != "" {
				value = "process.env." + h.variable
				if h.text != "" {
					value = compact(h.text) + " + " + value
				}
			}
			fmt.Fprintf(&b, "    %s: %s,\n", compact(h.name), value)
		}
		b.WriteString("  },\n")
	}
	if c.body != "" {
		fmt.Fprintf(&b, "  body: JSON.stringify(%s),\n", strings.ReplaceAll(c.body, "\n", "\n  "))
	}
	b.WriteString("});\nconsole.log(res.status, await res.text());")
	return b.String()
}

// socketSamples returns samples that open a WebSocket: with curl, and from a page of this origin,
// which uses the session of the console.
func socketSamples(op *operation) []sample {
	op.Request = nil
	c := callOf(op)
	shell := "curl -sS --no-buffer --http1.1 " + shellVariable("", "GATEHOUSE_URL", c.target)
	for _, h := range c.headers {
		shell += " \\\n  -H " + shellVariable(h.name+": "+h.text, h.variable, "")
	}
	shell += " \\\n  -H 'Connection: Upgrade' -H 'Upgrade: websocket' \\\n  -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=='"
	script := "const socket = new WebSocket(location.origin.replace(/^http/, \"ws\") + " + compact(c.target) + ");\n" +
		"socket.onopen = () => socket.send(JSON.stringify({ type: \"ping\", data: {} }));\n" +
		"socket.onmessage = (event) => console.log(event.data);"
	return []sample{{"curl", "curl", shell}, {"javascript", "JavaScript", script}}
}
