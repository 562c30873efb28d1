{{- define "sluice.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* spool.max_size for a volume of state.size: half of it, and a quarter where the access log is beside it. In whole MiB, 16 at least. */ -}}
{{- define "sluice.spoolSize" -}}
{{- $units := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $size := toString .Values.state.size -}}
{{- $unit := regexFind "[A-Za-z]+$" $size -}}
{{- $bytes := mulf (float64 (trimSuffix $unit $size)) (get $units $unit | default 1.0) -}}
{{- $part := ternary 4.0 2.0 (ne (toString (default "off" .Values.config.access_log)) "off") -}}
{{- $mib := int64 (divf $bytes $part 1048576.0) -}}
{{- printf "%dMiB" (min 1048576 (max 16 $mib)) -}}
{{- end -}}

{{- /* sluice.yaml: the values' config, and what the chart knows better. */ -}}
{{- define "sluice.config" -}}
{{- $tokens := list -}}
{{- range $name, $role := .Values.tokens.roles -}}
{{- $tokens = append $tokens (dict "name" $name "role" $role "file" (printf "/etc/sluice-tokens/%s" $name)) -}}
{{- end -}}
{{- $own := dict "version" 1 "gateway" (dict "state_directory" "/var/lib/sluice/state" "reload_on_change" true) "probes" (dict "bind" "0.0.0.0:9181" "metrics" "token") "rules_file" "limits.yaml" "admin" (dict "tokens" $tokens) -}}
{{- $given := deepCopy .Values.config -}}
{{- $spool := $given.spool | default dict -}}
{{- if not (or (hasKey $spool "max_size") (hasKey $spool "directory")) -}}{{- $_ := set $own "spool" (dict "max_size" (include "sluice.spoolSize" .)) -}}{{- end -}}
{{- if not (hasKey $given "access_log") -}}{{- $_ := set $own "access_log" "off" -}}{{- end -}}
{{- toYaml (mergeOverwrite $own $given) -}}
{{- end -}}

{{- define "sluice.container" -}}
name: sluice
image: {{ .Values.image }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
{{- if .Values.containers }}
restartPolicy: Always
{{- end }}
command: [sluice, run, -c, /etc/sluice/sluice.yaml]
env:
  - name: SLUICE_GATEWAY__NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - {name: SLUICE_TOKEN_FILE, value: /var/lib/sluice/state/admin.token}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: probes, containerPort: 9181}
  {{- range $name, $port := .Values.service }}
  - {name: {{ $name }}, containerPort: {{ $port }}}
  {{- end }}
startupProbe: {httpGet: {path: /startupz, port: probes}, periodSeconds: 1, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: probes}, periodSeconds: 10, timeoutSeconds: 5}
{{- if .Values.readinessProbe }}
readinessProbe: {httpGet: {path: /readyz, port: probes}, periodSeconds: 5, timeoutSeconds: 5}
{{- end }}
{{- if .Values.drainBeforeStop }}
lifecycle:
  preStop: {exec: {command: [sluice, drain, --yes]}}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: sluice-config, mountPath: /etc/sluice, readOnly: true}
  - {name: sluice-tokens, mountPath: /etc/sluice-tokens, readOnly: true}
  - {name: sluice-state, mountPath: /var/lib/sluice}
{{- end -}}
