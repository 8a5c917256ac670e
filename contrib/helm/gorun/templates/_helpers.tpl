{{- define "gorun.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains "gorun" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-gorun" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "gorun.selector" -}}
app.kubernetes.io/name: gorun
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gorun.labels" -}}
{{ include "gorun.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "gorun.image" -}}
{{- $repository := required "image.repository is not set: name your image, with gorun and Python in it" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" $repository .Values.image.digest }}
{{- else -}}
{{ printf "%s:%s" $repository .Values.image.tag }}
{{- end -}}
{{- end }}

{{- define "gorun.keySecret" -}}
{{- .Values.key.existingSecret | default (printf "%s-key" (include "gorun.name" .)) -}}
{{- end }}

{{- define "gorun.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "gorun.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "gorun.resources" -}}
{{- $more := dict -}}
{{- if .Values.gpu.count }}{{ $_ := set $more .Values.gpu.resource (toString .Values.gpu.count) }}{{ end -}}
{{- if .Values.rdma.enabled }}{{ $_ := set $more .Values.rdma.resource (toString .Values.rdma.count) }}{{ end -}}
{{- $requests := merge (dict) $more (.Values.resources.requests | default dict) -}}
{{- $limits := merge (dict) $more (.Values.resources.limits | default dict) -}}
{{- $all := dict -}}
{{- if $requests }}{{ $_ := set $all "requests" $requests }}{{ end -}}
{{- if $limits }}{{ $_ := set $all "limits" $limits }}{{ end -}}
{{- toYaml $all -}}
{{- end }}

{{- define "gorun.securityContext" -}}
{{- $context := deepCopy .Values.securityContext -}}
{{- if .Values.rdma.enabled -}}
{{- $capabilities := deepCopy ($context.capabilities | default dict) -}}
{{- $_ := set $capabilities "add" (append ($capabilities.add | default list) "IPC_LOCK" | uniq) -}}
{{- $_ := set $context "capabilities" $capabilities -}}
{{- end -}}
{{- toYaml $context -}}
{{- end }}
