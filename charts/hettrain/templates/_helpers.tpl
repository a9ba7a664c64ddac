{{- define "hettrain.name" -}}
{{- if contains "hettrain" .Release.Name -}}
{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-hettrain" .Release.Name | trunc 53 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Cluster-scoped names carry the namespace: two releases of one name do not meet. */}}
{{- define "hettrain.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "hettrain.name" .) }}
{{- end }}

{{- define "hettrain.selector" -}}
app.kubernetes.io/name: hettrain
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hettrain.labels" -}}
{{ include "hettrain.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "hettrain.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "hettrain.name" .) }}
{{- end }}

{{/* An image's reference: (list . image) */}}
{{- define "hettrain.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end }}
