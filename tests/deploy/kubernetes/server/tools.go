//go:build tools

// Package tools pins what `make test-kubernetes` builds: a real API server, and the etcd that it keeps its objects in.
package tools

import (
	_ "github.com/kubeflow/spark-operator/v2/api/v1beta2"
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
