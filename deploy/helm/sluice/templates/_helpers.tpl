{{- /* The release, as ever; of a dependency also the name or alias that the chart has there. 50 characters at most: pods add theirs. */ -}}
{{- define "sluice.name" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) .Chart.IsRoot -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if or .Chart.IsRoot (le (len $name) 50) -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (trunc 41 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- end -}}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* What the templates of sluice-sidecar are told, as JSON without `root` and `values`. */ -}}
{{- define "sluice.gateway" -}}
{{- dict "name" "sluice" "configMap" (include "sluice.name" .) "native" (not (empty .Values.containers)) "state" (eq .Values.kind "Deployment") | toJson -}}
{{- end -}}

{{- /* TCP ports that are neither sluice's nor closed, as a policy's ranges: what others in the pod serve stays open. Closed are also those of
       a broker in the pod that sluice stands before: who reached them would go round the limits. */ -}}
{{- define "sluice.otherPorts" -}}
{{- $taken := list (printf "%05d" (int .Values.probesPort)) -}}
{{- range $port := concat (values .Values.service) .Values.networkPolicy.closed -}}
{{- $taken = append $taken (printf "%05d" (int $port)) -}}
{{- end -}}
{{- range $listener := .Values.config.listeners -}}
{{- $upstream := $listener.upstream | default list -}}
{{- range $address := ternary $upstream (list $upstream) (kindIs "slice" $upstream) -}}
{{- if regexMatch "^(127\\.|localhost:|\\[::1\\]:)" (toString $address) -}}
{{- $taken = append $taken (printf "%05d" (regexFind "[0-9]+$" (toString $address) | atoi)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $from := 1 -}}
{{- range $port := append ($taken | uniq | sortAlpha) "65536" -}}
{{- $port = atoi $port -}}
{{- if gt $port $from }}
- {port: {{ $from }}, endPort: {{ sub $port 1 }}, protocol: TCP}
{{- end -}}
{{- $from = add1 $port | int -}}
{{- end -}}
{{- end -}}
