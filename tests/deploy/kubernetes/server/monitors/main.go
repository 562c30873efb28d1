// Reads manifests from stdin, strictly: what the Prometheus Operator does not know is an error. Its own definitions are in no module.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var about struct{ Kind string }
		if err := yaml.Unmarshal(document, &about); err != nil {
			fail("", err)
		}
		switch about.Kind {
		case "ServiceMonitor":
			err = yaml.UnmarshalStrict(document, &monitoring.ServiceMonitor{})
		case "PrometheusRule":
			err = yaml.UnmarshalStrict(document, &monitoring.PrometheusRule{})
		default:
			err = fmt.Errorf("no kind of the Prometheus Operator")
		}
		if err != nil {
			fail(about.Kind, err)
		}
	}
}

func fail(kind string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", kind, err)
	os.Exit(1)
}
