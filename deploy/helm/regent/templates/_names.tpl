{{- define "regent.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "regent.selector" -}}
app.kubernetes.io/name: regent
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "regent.labels" -}}
{{ include "regent.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "regent.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ required "give image.tag or image.digest" $image.tag }}
{{- end -}}
{{- end }}

{{- define "regent.pkiSecret" -}}
{{- if .Values.shard.pki.create -}}{{ include "regent.name" . }}-pki{{- else -}}{{ .Values.shard.pki.secretName }}{{- end -}}
{{- end }}

{{- define "regent.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "regent.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Containers that copy Secrets: a mounted one is readable by a group, which regent refuses. */}}
{{- define "regent.install" -}}
- name: {{ .what }}
  image: {{ include "regent.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: [pki, install, --from=/secrets/{{ .what }}, --to=/var/lib/regent/{{ .what }}]
  resources:
    requests: {cpu: 10m, memory: 64Mi}
    limits: {memory: 128Mi}
  securityContext: {{- include "regent.containerSecurity" . | nindent 4 }}
  volumeMounts:
  - {name: data, mountPath: /var/lib/regent}
  - {name: {{ .what }}, mountPath: /secrets/{{ .what }}, readOnly: true}
{{- end }}

{{- /* Files of the operator's, as a list of name, secretName and configMapName: mounted as whole directories, so that changes arrive. */}}
{{- define "regent.files" -}}
{{- $files := list -}}
{{- range $name, $from := .named -}}
{{- if or $from.secretName (get $from "configMapName") -}}
{{- $files = append $files (merge (dict "name" $name) $from) -}}
{{- end -}}
{{- end -}}
{{- concat $files .more | toYaml -}}
{{- end }}

{{- define "regent.shardFiles" -}}
{{- $shard := .Values.shard -}}
{{- $named := dict "encryption" $shard.encryption "authentication" $shard.authentication "authorization" $shard.authorization
  "audit-policy" $shard.audit.policy "audit-webhook" $shard.audit.webhook "client-ca" .Values.clientCA -}}
{{- include "regent.files" (dict "named" $named "more" $shard.extraFiles) -}}
{{- end }}

{{- define "regent.frontFiles" -}}
{{- include "regent.files" (dict "named" (dict "client-ca" .Values.clientCA) "more" list) -}}
{{- end }}

{{- define "regent.fileMounts" -}}
{{- range . }}
- {name: file-{{ .name }}, mountPath: /config/{{ .name }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "regent.fileVolumes" -}}
{{- range . }}
- name: file-{{ .name }}
  {{- if get . "secretName" }}
  secret: {secretName: {{ .secretName }}, defaultMode: 0440}
  {{- else }}
  configMap: {name: {{ .configMapName }}}
  {{- end }}
{{- end }}
{{- end }}

{{- define "regent.affinity" -}}
{{- $term := dict "labelSelector" (dict "matchLabels" (include "regent.selector" . | fromYaml)) "topologyKey" "kubernetes.io/hostname" -}}
{{- if eq .how "required" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution: {{- list $term | toYaml | nindent 4 }}
{{- else if eq .how "preferred" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution: {{- list (dict "weight" 100 "podAffinityTerm" $term) | toYaml | nindent 4 }}
{{- end }}
{{- end }}

{{- define "regent.probes" -}}
{{- /* A replica that waits for etcd at its start is live. */ -}}
startupProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
readinessProbe:
  httpGet: {path: "/readyz?exclude=etcd-space", port: https, scheme: HTTPS} # a full etcd takes no writes, but answers
  periodSeconds: 2
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /livez, port: https, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "regent.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
