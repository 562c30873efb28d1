{{- /*
Templates for a pod of your own chart: docs/deploy/kubernetes.md, "In a pod of your own chart". Each takes a dict:

  root: $    name: the alias that this chart has among your dependencies; it names the container, and begins the names of its volumes

  sluice-sidecar.container      a container, for initContainers: a native sidecar
  sluice-sidecar.volumes        a list, for volumes
  sluice-sidecar.annotations    a mapping, for the pod's annotations: a changed configuration starts new pods, as rollPodsOn says
  sluice-sidecar.configMap      a manifest, for a file of its own

The chart sluice gives `values` (its own), `configMap` (a name), `native` (whether others are in the pod) and `state` (whether the volume is the
pod's own) besides.
*/ -}}

{{- /* The values as JSON, after a look at the name. */ -}}
{{- define "sluice-sidecar.values" -}}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$" .name) -}}
{{- fail (printf "%s: a name is of small letters, digits and hyphens, 50 at most: it names a container and volumes" .name) -}}
{{- end -}}
{{- if hasKey . "values" -}}
{{- toJson .values -}}
{{- else -}}
{{- index .root.Values .name | required (printf "no dependency on sluice-sidecar has the alias %s" .name) | toJson -}}
{{- end -}}
{{- end -}}

{{- /* A reference of an image. `image`: what the values have, or the whole as text; `version`: without tag and digest. */ -}}
{{- define "sluice-sidecar.image" -}}
{{- if kindIs "string" .image -}}
{{- .image -}}
{{- else -}}
{{- $tag := .image.tag | default (ternary "" .version (not (empty .image.digest))) -}}
{{- .image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with .image.digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "sluice-sidecar.version" -}}
{{- if hasKey . "values" }}{{ .root.Chart.AppVersion }}{{ else }}{{ (index .root.Subcharts .name).Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "sluice-sidecar.configMapName" -}}
{{- .configMap | default (printf "%s-%s" .root.Release.Name .name) -}}
{{- end -}}

{{- /* Of the port, which is named once in a pod. */ -}}
{{- define "sluice-sidecar.probes" -}}
{{- $port := int (include "sluice-sidecar.values" . | fromJson).probesPort -}}
{{- ternary "probes" (printf "probes-%d" $port) (eq $port 9181) -}}
{{- end -}}

{{- /* A part of the volume state.size, in whole MiB, 16 at least: 4.0 is a quarter. */ -}}
{{- define "sluice-sidecar.partOfState" -}}
{{- $units := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $size := toString .size -}}
{{- $unit := regexFind "[A-Za-z]+$" $size -}}
{{- $bytes := mulf (float64 (trimSuffix $unit $size)) (get $units $unit | default 1.0) -}}
{{- $mib := int64 (divf $bytes .part 1048576.0) -}}
{{- printf "%dMiB" (min 1048576 (max 16 $mib)) -}}
{{- end -}}

{{- /* sluice.yaml: the values' config, and what the chart knows better. */ -}}
{{- define "sluice-sidecar.config" -}}
{{- $values := include "sluice-sidecar.values" . | fromJson -}}
{{- $tokens := list -}}
{{- range $name, $role := $values.tokens.roles -}}
{{- $tokens = append $tokens (dict "name" $name "role" $role "file" (printf "/etc/sluice-tokens/%s" $name)) -}}
{{- end -}}
{{- $own := dict "version" 1 "gateway" (dict "state_directory" "/var/lib/sluice/state" "reload_on_change" true) "rules_file" "limits.yaml" -}}
{{- $_ := set $own "probes" (dict "bind" (printf "0.0.0.0:%d" (int $values.probesPort)) "metrics" "token") -}}
{{- $_ = set $own "admin" (dict "bind" (printf "127.0.0.1:%d" (int $values.adminPort)) "tokens" $tokens) -}}
{{- $given := $values.config -}}
{{- $_ = required (printf "%s: config.listeners is required" .name) $given.listeners -}}
{{- $spool := $given.spool | default dict -}}
{{- $log := $given.access_log | default "off" -}}
{{- if not (or (hasKey $spool "max_size") (hasKey $spool "directory")) -}}
{{- $part := ternary 4.0 2.0 (ne (toString $log) "off") -}}
{{- $_ = set $own "spool" (dict "max_size" (include "sluice-sidecar.partOfState" (dict "size" $values.state.size "part" $part))) -}}
{{- end -}}
{{- if not (hasKey $given "access_log") -}}
{{- $_ = set $own "access_log" "off" -}}
{{- else if and (kindIs "map" $log) (not (hasKey $log "keep_size")) (hasPrefix "/var/lib/sluice/" (dig "directory" "" $log)) -}}
{{- $_ = set $own "access_log" (dict "keep_size" (include "sluice-sidecar.partOfState" (dict "size" $values.state.size "part" 2.0))) -}}
{{- end -}}
{{- /* Each node changes the rules of a Service in its own time. A drain.timeout below 10 s has no room for it. */ -}}
{{- $timeout := dig "timeout" "27s" ($given.drain | default dict) -}}
{{- if and $values.service (regexMatch "^([1-9][0-9]+(\\.[0-9]+)?s|[1-9][0-9]*(\\.[0-9]+)?(min|h|d))$" $timeout) -}}
{{- $_ = set $own "drain" (dict "delay" "5s") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own $given) -}}
{{- end -}}

{{- /* The two files, as data of a ConfigMap. */ -}}
{{- define "sluice-sidecar.files" -}}
sluice.yaml: |
  {{- include "sluice-sidecar.config" . | nindent 2 }}
limits.yaml: |
  {{- toYaml (include "sluice-sidecar.values" . | fromJson).limits | nindent 2 }}
{{- end -}}

{{- define "sluice-sidecar.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "sluice-sidecar.configMapName" . }}
  labels:
    app.kubernetes.io/name: {{ .name }}
    app.kubernetes.io/instance: {{ .root.Release.Name }}
    app.kubernetes.io/version: {{ include "sluice-sidecar.version" . | quote }}
    app.kubernetes.io/managed-by: {{ .root.Release.Service }}
data:
  {{- include "sluice-sidecar.files" . | nindent 2 }}
{{- end -}}

{{- define "sluice-sidecar.annotations" -}}
{{- $on := (include "sluice-sidecar.values" . | fromJson).rollPodsOn -}}
{{- if ne $on "nothing" -}}
checksum/{{ .name }}: {{ include (ternary "sluice-sidecar.files" "sluice-sidecar.config" (eq $on "all")) . | sha256sum }}
{{- end -}}
{{- end -}}

{{- define "sluice-sidecar.volumes" -}}
{{- $values := include "sluice-sidecar.values" . | fromJson -}}
- name: {{ .name }}-config
  configMap: {name: {{ include "sluice-sidecar.configMapName" . }}}
- name: {{ .name }}-tokens
  secret: {secretName: {{ $values.tokens.secret }}, optional: true, defaultMode: 0440}
{{- if dig "state" true . }}
- name: {{ .name }}-state
  emptyDir: {sizeLimit: {{ $values.state.size }}}
{{- end }}
{{- end -}}

{{- define "sluice-sidecar.container" -}}
{{- $values := include "sluice-sidecar.values" . | fromJson -}}
{{- $probes := include "sluice-sidecar.probes" . -}}
name: {{ .name }}
image: {{ include "sluice-sidecar.image" (dict "image" $values.image "version" (include "sluice-sidecar.version" .)) }}
imagePullPolicy: {{ $values.imagePullPolicy }}
{{- if dig "native" true . }}
restartPolicy: Always
{{- end }}
command: [sluice, run, -c, /etc/sluice/sluice.yaml]
env:
  {{- if hasKey . "values" }}
  - name: SLUICE_GATEWAY__NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- else }}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - {name: SLUICE_GATEWAY__NAME, value: $(POD_NAME).{{ .name }}}
  {{- end }}
  {{- if ne (int $values.adminPort) 9180 }}
  - {name: SLUICE_ADMIN, value: "http://127.0.0.1:{{ int $values.adminPort }}"}
  {{- end }}
  - {name: SLUICE_TOKEN_FILE, value: /var/lib/sluice/state/admin.token}
  {{- with $values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: {{ $probes }}, containerPort: {{ int $values.probesPort }}}
  {{- range $name, $port := $values.service }}
  - {name: {{ $name }}, containerPort: {{ int $port }}}
  {{- end }}
startupProbe: {httpGet: {path: /startupz, port: {{ $probes }}}, periodSeconds: 1, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: {{ $probes }}}, periodSeconds: 10, timeoutSeconds: 5}
{{- if $values.readinessProbe }}
readinessProbe: {httpGet: {path: /readyz, port: {{ $probes }}}, periodSeconds: 5, timeoutSeconds: 5}
{{- end }}
{{- if $values.drainBeforeStop }}
lifecycle:
  preStop: {exec: {command: [sluice, drain, --yes]}}
{{- end }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: {{ .name }}-config, mountPath: /etc/sluice, readOnly: true}
  - {name: {{ .name }}-tokens, mountPath: /etc/sluice-tokens, readOnly: true}
  - {name: {{ .name }}-state, mountPath: /var/lib/sluice}
{{- end -}}
